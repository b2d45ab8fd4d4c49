"""Collects what is left of an ended Sandbox, once its status tells the end: its pod, and after a while the resource."""

from __future__ import annotations

from sandlot_contract.verdicts import SandboxVerdict
from sandlot_kube import clock
from sandlot_kube.objects import Pod, Sandbox, SandboxPhase

from ..metrics import Metrics
from ..settings import Settings
from ..world.world import World
from .api import Api
from .pod_deletion import PodDeletion
from .retention import Retention


class EndedSandboxes:
    """`seen` and `gone` are called for every event of a Sandbox and return at once; each step is idempotent."""

    def __init__(
        self, world: World, api: Api, *, deletion: PodDeletion, settings: Settings, metrics: Metrics
    ) -> None:
        self._world = world
        self._deletion = deletion
        self._metrics = metrics
        self._retention = Retention(api, seconds=settings.retention)
        self._since = api.client.now() - 1.0  # an end's time has whole seconds
        self._counted: set[str] = set()
        world.pod_listeners.append(self._on_pod)
        world.sandbox_listeners.append(self._on_sandbox)

    async def run(self) -> None:
        """Until cancelled: removes what was kept long enough."""
        await self._retention.run()

    def seen(self, sandbox: Sandbox) -> None:
        """Added or changed."""
        if sandbox.status.phase is not SandboxPhase.ENDED:
            return
        name, status = sandbox.metadata.name, sandbox.status
        if name not in self._counted:
            self._counted.add(name)
            # Those that ended before us were counted then.
            if (clock.seconds(status.ended_at) or 0.0) >= self._since:
                self._metrics.ended.labels(status.verdict).inc()
        self._retention.keep(sandbox)
        self._delete_pod(sandbox)

    def gone(self, sandbox: Sandbox) -> None:
        self._counted.discard(sandbox.metadata.name)
        self._retention.gone(sandbox)
        self._delete_pod(sandbox)

    def _on_sandbox(self, sandbox: Sandbox, gone: bool) -> None:
        """A deletion that no event tells: it was within a gap between two watches."""
        if gone:
            self.gone(sandbox)

    def _on_pod(self, pod: Pod, gone: bool) -> None:
        """A pod that the watch shows only after its Sandbox has ended."""
        sandbox = self._world.sandboxes.get(self._world.claims.get(pod.metadata.name, ""))
        if not gone and sandbox is not None and sandbox.status.phase is SandboxPhase.ENDED:
            self._delete_pod(sandbox)

    def _delete_pod(self, sandbox: Sandbox) -> None:
        pod = self._world.pods.get(sandbox.instance_id)
        if pod is None:
            return
        # A lost node cannot say that the pod has ended; without that word the pod would stay for ever.
        if (
            sandbox.status.verdict == SandboxVerdict.NODE_LOST
            or pod.spec.node_name in self._world.silent_since
        ):
            self._deletion.delete(pod, force=True)
        elif pod.metadata.deletion_timestamp is None:
            self._deletion.delete_in_batch(pod)
