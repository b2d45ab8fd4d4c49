"""The end of a Sandbox: its status from the gateway's word, its pod away, and after a while the resource itself."""

from __future__ import annotations

import asyncio
import logging
import time

from sandlot_kube.objects import Pod, Sandbox

from sandlot_controller import clock, status
from sandlot_controller.api import Api
from sandlot_controller.metrics import Metrics
from sandlot_controller.retry import until_done
from sandlot_controller.settings import Settings
from sandlot_controller.tasks import Tasks, wait_set
from sandlot_controller.timers import Timers
from sandlot_controller.verdicts import NODE_LOST, Verdict
from sandlot_controller.world import World

_log = logging.getLogger(__name__)


class Endings:
    """`seen` and `gone` are called for every event of a Sandbox and return at once; each step is idempotent."""

    def __init__(self, world: World, api: Api, *, settings: Settings, metrics: Metrics) -> None:
        self._world = world
        self._api = api
        self._retention = settings.retention
        self._metrics = metrics
        self._tasks = Tasks()
        self._kept = Timers()
        self._sandboxes: dict[str, Sandbox] = {}  # ended ones that are still kept
        self._wake = asyncio.Event()
        world.pod_listeners.append(self._on_pod)

    async def run(self) -> None:
        """Until cancelled: removes what was kept long enough."""
        try:
            while True:
                self._wake.clear()
                for name in self._kept.pop_due(time.time()):
                    if (sandbox := self._sandboxes.get(name)) is not None:
                        self._tasks.spawn(f"remove {name}", self._remove(sandbox))
                due = self._kept.next_at()
                # The wall clock may jump: it is looked at again every minute.
                wait = 60.0 if due is None else min(60.0, max(0.0, due - time.time()))
                await wait_set(self._wake, seconds=wait)
        finally:
            await self._tasks.close()

    def seen(self, sandbox: Sandbox) -> None:
        """Added or changed."""
        name = sandbox.metadata.name
        if sandbox.status.phase == "Ended":
            ended_at = clock.seconds(sandbox.status.ended_at) or time.time()
            self._sandboxes[name] = sandbox
            self._kept.set(name, ended_at + self._retention)
            self._wake.set()
        elif sandbox.spec.ended is not None:
            self._tasks.spawn(f"status {name}", self._say(sandbox))
        if sandbox.status.phase == "Ended" or sandbox.spec.ended is not None:
            self._take_pod(sandbox)

    def gone(self, sandbox: Sandbox) -> None:
        self._sandboxes.pop(sandbox.metadata.name, None)
        self._kept.drop(sandbox.metadata.name)
        self._take_pod(sandbox)

    def _on_pod(self, pod: Pod, gone: bool) -> None:
        """A pod that the watch shows only after its Sandbox has ended."""
        sandbox = self._world.sandboxes.get(self._world.claims.get(pod.metadata.name, ""))
        if not gone and sandbox is not None and (sandbox.spec.ended or sandbox.status.phase == "Ended"):
            self._take_pod(sandbox)

    def _take_pod(self, sandbox: Sandbox) -> None:
        pod = self._world.pods.get(sandbox.spec.pod_name or sandbox.metadata.name)
        if pod is None:
            return
        lost = sandbox.status.verdict == NODE_LOST or pod.spec.node_name in self._world.silent_since
        # A lost node cannot say that the pod has ended; without that word the pod would stay for ever.
        if lost or pod.metadata.deletion_timestamp is None:
            self._tasks.spawn(f"delete {pod.metadata.name}", self._delete(pod, now=lost))

    async def _say(self, sandbox: Sandbox) -> None:
        ended = sandbox.spec.ended
        assert ended is not None
        verdict = Verdict(ended.verdict, ended.message or "", ended.exit_code)
        pod = self._world.pods.get(sandbox.spec.pod_name or sandbox.metadata.name)
        patch = status.ended(sandbox, verdict, pod=pod, at=ended.at, now=time.time())
        if patch is not None:
            await until_done(lambda: self._api.patch_sandbox_status(sandbox, patch))
            self._metrics.ended.labels(verdict.verdict).inc()

    async def _delete(self, pod: Pod, *, now: bool) -> None:
        await until_done(lambda: self._api.delete_pod(pod, now=now))

    async def _remove(self, sandbox: Sandbox) -> None:
        await until_done(lambda: self._api.delete_sandbox(sandbox))
        _log.debug("%s was kept long enough", sandbox.metadata.name)
