"""Drives every Sandbox: creates its pod, writes its status, and records a verdict when its pod dies."""

from __future__ import annotations

import asyncio
import logging

from sandlot_contract import names
from sandlot_contract.verdicts import SandboxVerdict
from sandlot_kube import verdicts
from sandlot_kube.objects import Pod, Sandbox, SandboxPhase
from sandlot_kube.verdicts import Verdict
from sandlot_kube.waiting import wait_set

from ..metrics import Metrics
from ..plan import sandboxes as plan
from ..plan import status
from ..plan.pod_life import PodFacts
from ..plan.sandboxes import (
    MISSING_GRACE,
    Create,
    DeleteDuplicate,
    End,
    EndUnlessPod,
    ReportStarting,
    ReportWaiting,
    Run,
)
from ..settings import Settings
from ..tokens import InstanceTokens
from ..world.world import World
from . import sandbox_facts
from .api import Api
from .cold_starts import ColdStarts
from .node_choices import NodeChoices, is_rejected
from .pod_deletion import PodDeletion
from .pod_replacement import PodReplacement
from .retry import until_done
from .status_writer import StatusWriter
from .tasks import Tasks
from .timers import Timers

_log = logging.getLogger(__name__)


class SandboxLoop:
    """Creates a cold start's pod within the watch's callback, without waiting for anything."""

    def __init__(
        self,
        world: World,
        api: Api,
        *,
        choices: NodeChoices,
        deletion: PodDeletion,
        replacement: PodReplacement,
        settings: Settings,
        tokens: InstanceTokens,
        metrics: Metrics,
    ) -> None:
        self._world = world
        self._api = api
        self._deletion = deletion
        self._replacement = replacement
        self._settings = settings
        self._metrics = metrics
        self._tasks = Tasks()
        self._timers = Timers()
        self._wake = asyncio.Event()
        self._open = False  # all watches have been listed, so what is missing is missing
        self._measured: set[str] = set()
        self._statuses = StatusWriter(clock=world.clock, written=self._look)
        self._starts = ColdStarts(
            world,
            api,
            choices=choices,
            settings=settings,
            tokens=tokens,
            metrics=metrics,
            made=self._look,
            failed=lambda sandbox, why: self._end(sandbox, Verdict(SandboxVerdict.START_FAILED, why)),
        )
        world.sandbox_listeners.append(self._on_sandbox)
        world.pod_listeners.append(self._on_pod)
        world.node_listeners.append(lambda _: self._wake.set())

    async def run(self) -> None:
        """Run until cancelled; call this after the watches are synced."""
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
                        self._delete_orphan(pod)
                self._starts.admit()
                due = self._timers.next_at()
                wait = None if due is None else max(0.0, due - self._world.clock())
                await wait_set(self._wake, seconds=wait)
        finally:
            self._open = False
            await self._starts.close()
            await self._statuses.close()
            await self._tasks.close()

    # Watch events.

    def _on_sandbox(self, sandbox: Sandbox, gone: bool) -> None:
        name = sandbox.metadata.name
        if not gone:
            self._look(name)
            return
        self._timers.drop(name)
        self._starts.forget(name)
        self._statuses.forget(name)
        self._measured.discard(name)
        if (pod := self._world.pods.get(name)) is not None:
            self._delete_orphan(pod)

    def _on_pod(self, pod: Pod, gone: bool) -> None:
        replaced = gone and self._replacement.done(pod.metadata.name)
        self._wake.set()  # a node may have room for another start
        claimants = self._world.claimants(pod.metadata.name)
        if not claimants:
            if not gone and self._open:
                self._delete_orphan(pod)
            return
        if replaced:
            self._starts.again(pod.metadata.name)
        elif gone:
            self._world.remember(pod.metadata.name, verdicts.of_deleted_pod(pod))
        elif self._open and is_rejected(pod):
            self._replacement.replace(pod)
        for name in claimants:
            self._look(name)

    # Reactions.

    def _look(self, name: str) -> None:
        sandbox = self._world.sandboxes.get(name)
        if sandbox is None or not self._open or self._replacement.is_replacing(sandbox.instance_id):
            return
        now = self._world.clock()
        facts = sandbox_facts.of(
            self._world,
            sandbox,
            made_at=self._starts.made_at(name),
            replaced=self._starts.is_replaced(name),
            node_grace=self._settings.node_grace,
            now=now,
            wall=self._api.now(),
        )
        if facts.pod is not None and (facts.pod.ready_since is not None or verdicts.of_pod(facts.pod.pod)):
            self._settled(name, facts.pod)
        if self._statuses.is_writing(name):
            return  # looked at again after the write
        if (until := self._statuses.waits_until(sandbox)) is not None:
            self._look_at(name, until)  # this version is outdated and may lack, say, an end
            return
        step = plan.step(sandbox, facts, now=now, settings=self._settings)
        if step.again_at is not None:
            self._look_at(name, step.again_at)
        match step.action:
            case Create(tell):
                self._starts.begin(name)
                if tell and self._starts.is_queued(name):
                    self._write(sandbox, status.queued(sandbox, now=self._api.now()))
            case Run():
                assert facts.pod is not None
                self._write(sandbox, status.running(sandbox, facts.pod.pod, now=self._api.now()))
            case ReportWaiting(message):
                self._write(sandbox, status.pending(sandbox, message=message, now=self._api.now()))
            case ReportStarting():
                self._write(sandbox, status.starting(sandbox, now=self._api.now()))
            case DeleteDuplicate():
                self._tasks.spawn(name, until_done(lambda: self._api.delete_sandbox(sandbox)))
            case End(verdict):
                self._end(sandbox, verdict)
            case EndUnlessPod(verdict):
                self._end(sandbox, verdict, unless_pod=True)
            case None:
                if sandbox.status.phase is SandboxPhase.ENDED:
                    self._starts.settled(name)

    def _look_at(self, name: str, at: float) -> None:
        self._timers.set(name, at)
        self._wake.set()

    def _settled(self, name: str, pod: PodFacts) -> None:
        self._starts.settled(name)
        is_cold = pod.pod.metadata.name == name
        if is_cold and pod.ready_since is not None and name not in self._measured:
            self._measured.add(name)
            seconds = max(0.0, pod.ready_since - self._world.first_seen[name])
            self._metrics.starts.labels("cold").observe(seconds)

    def _end(self, sandbox: Sandbox, verdict: Verdict, *, unless_pod: bool = False) -> None:
        pod = self._world.pods.get(sandbox.instance_id)
        patch = status.ended(sandbox, verdict, pod=pod, now=self._api.now())
        if self._write(sandbox, patch, unless_pod=unless_pod):
            _log.info("ending %s: %s: %s", sandbox.metadata.name, verdict.verdict, verdict.message)

    def _write(self, sandbox: Sandbox, patch: status.Patch | None, *, unless_pod: bool = False) -> bool:
        """Write a patch; return False if there is none or another write is in progress."""
        if patch is None:
            return False

        async def send() -> None:
            if unless_pod and await self._api.has_pod(sandbox.instance_id):
                _log.warning("%s goes on: the watch is late to show its pod", sandbox.metadata.name)
                return
            # A create that waits may be renewed, or get its instance, at this moment.
            await self._api.patch_sandbox_status(sandbox, patch, unchanged=sandbox.spec.waits)

        return self._statuses.write(sandbox, send)

    def _delete_orphan(self, pod: Pod) -> None:
        """Delete a cold start's pod whose resource is gone; pool pods belong to their pools."""
        name, terminating = pod.metadata.name, pod.metadata.deletion_timestamp is not None
        if names.LABEL_FOR not in pod.metadata.labels:
            return
        if terminating:
            # A lost node cannot confirm the pod's end; without force the pod would stay forever.
            due = self._world.node_lost_at(pod.spec.node_name, grace=self._settings.node_grace)
        else:
            due = max(self._world.pod_seen[name], self._world.complete_since(Sandbox)) + MISSING_GRACE
        if due is None:
            return
        if self._world.clock() < due:
            self._look_at(name, due)
        else:
            self._deletion.delete(pod, force=terminating)
