"""Keeps every Sandbox going: its pod at once when one is wanted, its status, the verdict when its pod dies."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial

from sandlot_contract import images, names
from sandlot_contract.verdicts import SandboxVerdict
from sandlot_kube import clock, verdicts
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import Pod, Sandbox
from sandlot_kube.verdicts import Verdict
from sandlot_kube.waiting import wait_set

from sandlot_controller import pod as pods
from sandlot_controller import sandbox_plan, status
from sandlot_controller.api import Api
from sandlot_controller.metrics import Metrics
from sandlot_controller.retry import until_done
from sandlot_controller.sandbox_plan import MISSING_GRACE, Create, Drop, End, Facts, Run, Tell
from sandlot_controller.settings import Settings
from sandlot_controller.tasks import Tasks
from sandlot_controller.timers import Timers
from sandlot_controller.tokens import InstanceTokens
from sandlot_controller.usable_nodes import UsableNodes
from sandlot_controller.world import World

_log = logging.getLogger(__name__)
_SHOWN = 5.0  # seconds in which the watch shows a write, or the write is done again
# Its gateway has given a start up by then, so that nobody waits for a pod; one that had a pod may have had an owner.
_LATE = 60.0
_RENEWAL = (
    15.0  # a gateway that could not say so for want of an API server says within this that it is still there
)


class SandboxLoop:
    """A cold start's pod is asked for within the callback of the watch: nothing is waited for before it."""

    def __init__(
        self, world: World, api: Api, *, settings: Settings, tokens: InstanceTokens, metrics: Metrics
    ) -> None:
        self._world = world
        self._api = api
        self._settings = settings
        self._tokens = tokens
        self._metrics = metrics
        self._tasks = Tasks()
        self._timers = Timers()
        self._usable = UsableNodes(world, settings=settings)
        self._wake = asyncio.Event()
        self._open = False  # all watches have been listed: what is missing is missing
        self._queue: deque[str] = deque()  # cold ones that wait for their turn
        self._queued: set[str] = set()
        self._starting: set[str] = set()  # cold ones whose pod is not running yet
        self._had_pod: set[str] = set()
        self._made: dict[str, float] = {}  # cold ones whose pod was made → when
        self._measured: set[str] = set()
        self._written: dict[str, tuple[str, float]] = {}  # over which resource version, and when
        self._again: set[str] = set()  # looked at while a status was being written
        world.sandbox_listeners.append(self._on_sandbox)
        world.pod_listeners.append(self._on_pod)

    async def run(self) -> None:
        """Until cancelled. Call it when the watches are synced."""
        self._open = True
        try:
            for sandbox in list(self._world.sandboxes.values()):
                self._look(sandbox.metadata.name)
            for pod in list(self._world.pods.values()):
                self._on_pod(pod, False)
            while True:
                self._wake.clear()
                for name in self._timers.pop_due(self._world.clock()):
                    if name in self._world.sandboxes:
                        self._look(name)
                    elif (pod := self._world.pods.get(name)) is not None:
                        self._orphan(pod)
                self._admit()
                due = self._timers.next_at()
                wait = None if due is None else max(0.0, due - self._world.clock())
                await wait_set(self._wake, seconds=wait)
        finally:
            self._open = False
            await self._tasks.close()

    # What the watches tell.

    def _on_sandbox(self, sandbox: Sandbox, gone: bool) -> None:
        name = sandbox.metadata.name
        if gone:
            self._timers.drop(name)
            self._settled(name)
            for known in (self._had_pod, self._measured, self._again):
                known.discard(name)
            self._made.pop(name, None)
            self._written.pop(name, None)
            if (pod := self._world.pods.get(name)) is not None:
                self._orphan(pod)
        elif self._open:
            self._look(name)

    def _on_pod(self, pod: Pod, gone: bool) -> None:
        name = self._world.claims.get(pod.metadata.name)
        if name is None:
            if not gone and self._open:
                self._orphan(pod)
            return
        if gone:
            self._world.remember(pod.metadata.name, verdicts.of_deleted_pod(pod))
        self._had_pod.add(name)
        if self._open:
            self._look(name)

    # What follows.

    def _look(self, name: str) -> None:
        sandbox = self._world.sandboxes.get(name)
        if sandbox is None:
            return
        now = self._world.clock()
        step = sandbox_plan.step(sandbox, self._facts(sandbox, now=now), now=now, settings=self._settings)
        if step.again_at is not None:
            self._timers.set(name, step.again_at)
            self._wake.set()
        match step.action:
            case Create():
                if name not in self._queued and name not in self._starting:
                    self._queued.add(name)
                    self._queue.append(name)
                self._admit()
                return
            case Run():
                self._say(sandbox, pod=self._world.pods.get(sandbox.spec.pod_name or name))
            case Tell(message):
                self._write(sandbox, status.pending(sandbox, message=message, now=self._api.client.now()))
            case Drop():
                self._tasks.spawn(f"drop {name}", until_done(lambda: self._api.delete_sandbox(sandbox)))
            case End(verdict):
                self._end(sandbox, verdict)
            case None:
                pass
        if name in self._starting and sandbox.status.phase == "Ended":
            self._settled(name)

    def _facts(self, sandbox: Sandbox, *, now: float) -> Facts:
        world, name = self._world, sandbox.metadata.name
        pod_name = sandbox.spec.pod_name or name
        pod = world.pods.get(pod_name)
        if pod is not None:
            found = verdicts.of_pod(pod)
            if found is not None and not found.certain:
                world.odd_since.setdefault(pod_name, now)
            if pod_name in world.ready_since or found is not None:
                self._settled(name)
        return Facts(
            pod=pod,
            first_seen=world.first_seen.get(name, now),
            pod_seen=None if pod is None else world.first_seen.get(pod_name),
            pod_was_here=name in self._had_pod and pod is None,
            told_late=self._told_late(sandbox, now=now),
            made_at=self._made.get(name),
            ready_since=world.ready_since.get(pod_name),
            odd_since=world.odd_since.get(pod_name),
            silent_since=_silent_since(world, pod),
            lost=world.lost.get(pod_name),
            waits_until=self._waits_until(sandbox, now=now),
            has_instance=sandbox.spec.waits and self._has_instance(sandbox.spec.sandbox_id),
        )

    def _waits_until(self, sandbox: Sandbox, *, now: float) -> float:
        until = clock.seconds(sandbox.spec.waiting_until)
        if until is None:
            return 0.0
        return max(now + until - self._api.client.now(), self._world.told_since + _RENEWAL)

    def _told_late(self, sandbox: Sandbox, *, now: float) -> bool:
        created = clock.seconds(sandbox.metadata.creation_timestamp)
        if created is None:
            return False
        seen = self._api.client.now() - (now - self._world.first_seen.get(sandbox.metadata.name, now))
        return seen - created > _LATE

    def _has_instance(self, sandbox_id: str | None) -> bool:
        return any(
            one.spec.sandbox_id == sandbox_id and not one.spec.waits for one in self._world.sandboxes.values()
        )

    def _settled(self, name: str) -> None:
        """It is no start any more that others would have to wait for."""
        self._starting.discard(name)
        self._queued.discard(name)
        since = self._world.ready_since.get(name)
        if since is not None and name not in self._measured and name in self._world.sandboxes:
            self._measured.add(name)
            self._metrics.starts.labels("cold").observe(max(0.0, since - self._world.first_seen[name]))
        if self._queue:
            self._wake.set()

    def _admit(self) -> None:
        """Start as many of those that wait as may be starting at one time, the oldest first."""
        limit = self._settings.cold_starts_per_node * max(1, len(self._usable.names()))
        while self._queue and len(self._starting) < limit:
            name = self._queue.popleft()
            if name not in self._queued:
                continue
            self._queued.discard(name)
            sandbox = self._world.sandboxes.get(name)
            if sandbox is not None and name not in self._world.pods:
                self._starting.add(name)
                self._tasks.spawn(f"create {name}", self._create(sandbox))
        self._metrics.waiting.set(len(self._queued))

    async def _create(self, sandbox: Sandbox) -> None:
        name = sandbox.metadata.name
        why = images.refusal(sandbox.spec.template.image, allowed=self._settings.registries)
        if why is not None:
            self._settled(name)
            self._end(sandbox, Verdict(SandboxVerdict.START_FAILED, why))
            return
        body = pods.sandbox_pod(sandbox, token=self._tokens.instance(name), settings=self._settings)
        try:
            await until_done(lambda: self._api.create_pod(body, kind="cold"))
        except KubeError as error:
            self._settled(name)
            self._end(sandbox, Verdict(SandboxVerdict.START_FAILED, f"no pod could be made: {error}"))
            return
        self._made[name] = self._world.clock()
        self._look(name)

    def _say(self, sandbox: Sandbox, *, pod: Pod | None) -> None:
        if pod is not None:
            self._write(sandbox, status.running(sandbox, pod, now=self._api.client.now()))

    def _end(self, sandbox: Sandbox, verdict: Verdict) -> None:
        pod = self._world.pods.get(sandbox.spec.pod_name or sandbox.metadata.name)
        patch = status.ended(sandbox, verdict, pod=pod, now=self._api.client.now())
        if self._write(sandbox, patch):
            _log.info("%s ended: %s: %s", sandbox.metadata.name, verdict.verdict, verdict.message)

    def _write(self, sandbox: Sandbox, patch: status.Patch | None) -> bool:
        """One at a time of each resource, and none over what was already written over."""
        if patch is None:
            return False
        name = sandbox.metadata.name
        version, at = self._written.get(name, ("", 0.0))
        if version == sandbox.metadata.resource_version and self._world.clock() < at + _SHOWN:
            self._timers.set(name, at + _SHOWN)
            self._wake.set()
            return False  # the watch has yet to show the last write, and we look again when it does
        again = partial(self._look_again, name)
        if not self._tasks.spawn(f"status {name}", self._patch(sandbox, patch), then=again):
            self._again.add(name)
            return False
        return True

    async def _patch(self, sandbox: Sandbox, patch: status.Patch) -> None:
        name = sandbox.metadata.name
        # One that waits may be renewed, or get its instance, at this moment.
        unchanged = sandbox.spec.waits
        await until_done(lambda: self._api.patch_sandbox_status(sandbox, patch, unchanged=unchanged))
        self._written[name] = (sandbox.metadata.resource_version, self._world.clock())

    def _look_again(self, name: str) -> None:
        if name in self._again:
            self._again.discard(name)
            if self._open:
                self._look(name)

    def _orphan(self, pod: Pod) -> None:
        """A cold start's pod whose resource is gone; those of pools are the pools' own."""
        name = pod.metadata.name
        if names.LABEL_FOR not in pod.metadata.labels or pod.metadata.deletion_timestamp is not None:
            return
        due = self._world.first_seen.get(name, 0.0) + MISSING_GRACE
        if self._world.clock() < due:
            self._timers.set(name, due)
            self._wake.set()
            return
        self._tasks.spawn(f"orphan {name}", self._delete(pod))

    async def _delete(self, pod: Pod) -> None:
        await until_done(lambda: self._api.delete_pod(pod))


def _silent_since(world: World, pod: Pod | None) -> float | None:
    """A node that no watch has shown is silent from now on: its pod may be told before a new node is."""
    node = pod.spec.node_name if pod else None
    if pod is None or not node:
        return None
    if node in world.nodes:
        return world.silent_since.get(node)
    return world.silent_since.setdefault(node, world.clock())
