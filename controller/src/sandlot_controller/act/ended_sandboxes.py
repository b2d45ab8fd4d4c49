"""Cleans up after ended Sandboxes: deletes the pod once its sidecar has ended, and the resource after a retention period."""

from __future__ import annotations

import asyncio
import logging

from sandlot_contract.verdicts import GRACEFUL, SandboxVerdict
from sandlot_kube import clock
from sandlot_kube.objects import Pod, Sandbox, SandboxPhase
from sandlot_kube.waiting import wait_set

from ..metrics import Metrics
from ..settings import Settings
from ..tokens import InstanceTokens
from ..world.world import World
from .api import Api
from .pod_deletion import PodDeletion, sidecar_is_over
from .retention import Retention
from .sidecars import EndAnswer, Sidecars, SidecarUnreachable
from .tasks import Tasks
from .timers import Timers

_log = logging.getLogger(__name__)


class EndedSandboxes:
    """Handles every event of a Sandbox by `seen` and `gone`, which return at once; each step is idempotent."""

    def __init__(
        self,
        world: World,
        api: Api,
        *,
        deletion: PodDeletion,
        settings: Settings,
        tokens: InstanceTokens,
        sidecars: Sidecars,
        metrics: Metrics,
    ) -> None:
        self._world = world
        self._deletion = deletion
        self._tokens = tokens
        self._sidecars = sidecars
        self._tasks = Tasks()
        self._metrics = metrics
        self._retention = Retention(api, seconds=settings.retention)
        self._node_grace = settings.node_grace
        self._silent: dict[str, Sandbox] = {}  # pod on a silent node -> its Sandbox
        self._timers = Timers()  # when the nodes of those pods count as lost
        self._wake = asyncio.Event()
        self._since = api.now() - 1.0  # times of ends have whole seconds
        self._counted: set[str] = set()
        world.pod_listeners.append(self._on_pod)
        world.sandbox_listeners.append(self._on_sandbox)

    async def run(self) -> None:
        """Run until cancelled: delete resources after their retention, and pods of lost nodes."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._retention.run())
                group.create_task(self._delete_of_lost_nodes())
        finally:
            await self.close()

    async def close(self) -> None:
        """Give up calls to sidecars, which begin before `run` does."""
        await self._tasks.close()

    def seen(self, sandbox: Sandbox) -> None:
        """Handle a new or changed Sandbox."""
        if sandbox.status.phase is not SandboxPhase.ENDED:
            return
        name, status = sandbox.metadata.name, sandbox.status
        if name not in self._counted:
            self._counted.add(name)
            # earlier ends were counted by the previous leader
            if (clock.seconds(status.ended_at) or 0.0) >= self._since:
                self._metrics.sandbox_ended(status.verdict)
        self._retention.keep(sandbox)
        self._delete_pod(sandbox)

    def gone(self, sandbox: Sandbox) -> None:
        self._counted.discard(sandbox.metadata.name)
        self._retention.gone(sandbox)
        self._delete_pod(sandbox)

    def _on_sandbox(self, sandbox: Sandbox, gone: bool) -> None:
        """Handle a deletion that fell into a gap between two watches."""
        if gone:
            self.gone(sandbox)

    def _on_pod(self, pod: Pod, gone: bool) -> None:
        """Handle a pod that appears only after its Sandbox has ended."""
        sandbox = self._world.sandboxes.get(self._world.claims.get(pod.metadata.name, ""))
        if not gone and sandbox is not None and sandbox.status.phase is SandboxPhase.ENDED:
            self._delete_pod(sandbox)

    def _delete_pod(self, sandbox: Sandbox) -> None:
        pod = self._world.pods.get(sandbox.instance_id)
        # A reused pod ends with its sidecar, and may have another owner by now.
        if pod is None or sandbox.spec.generation is not None:
            return
        # A lost node cannot confirm the pod's end; without force the pod would stay forever.
        if sandbox.status.verdict == SandboxVerdict.NODE_LOST or self._is_lost(pod, sandbox):
            self._deletion.delete(pod, force=True)
        elif not self._deletion.is_asked(pod):
            self._delete_after_sidecar(pod, sandbox)

    def _is_lost(self, pod: Pod, sandbox: Sandbox) -> bool:
        """Return whether the pod's node has been silent for too long; otherwise look again when it may be."""
        due = self._world.node_lost_at(pod.spec.node_name, grace=self._node_grace)
        if due is None:
            return False
        if self._world.clock() >= due:
            return True
        self._silent[pod.metadata.name] = sandbox
        self._timers.set(pod.metadata.name, due)
        self._wake.set()
        return False

    async def _delete_of_lost_nodes(self) -> None:
        while True:
            self._wake.clear()
            for name in self._timers.pop_due(self._world.clock()):
                self._delete_pod(self._silent.pop(name))
            due = self._timers.next_at()
            await wait_set(self._wake, seconds=None if due is None else max(0.0, due - self._world.clock()))

    def _delete_after_sidecar(self, pod: Pod, sandbox: Sandbox) -> None:
        """Delete a pod, also one that is being deleted: its own grace is longer than it needs by now."""
        verdict = sandbox.status.verdict or SandboxVerdict.DELETED
        address = pod.sidecar_host
        if verdict in GRACEFUL and address is not None and not sidecar_is_over(pod):
            self._tasks.spawn(pod.metadata.uid, self._end(pod, address, sandbox, verdict=verdict))
        else:
            self._deletion.delete_in_batch(pod)

    async def _end(self, pod: Pod, address: str, sandbox: Sandbox, *, verdict: str) -> None:
        """Have the sidecar end, as the gateway does that wrote the end: the deletion may come first, and leaves no grace."""
        answer = EndAnswer.ENDED
        try:
            answer = await self._sidecars.end(
                address,
                token=self._tokens.of(pod),
                verdict=verdict,
                message=sandbox.status.message or "its Sandbox has ended",
                only_of=sandbox.status.sandbox_id or sandbox.spec.belongs_to,
            )
        except SidecarUnreachable as error:
            _log.debug("%s: its sidecar has ended, or stops nothing any more: %s", pod.metadata.name, error)
        if answer is EndAnswer.STOPPING:
            self._deletion.delete_ended(pod, answer)
        else:
            self._deletion.delete_in_batch(pod)
