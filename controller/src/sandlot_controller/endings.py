"""The end of a Sandbox, once its status tells it: its pod away, and after a while the resource itself."""

from __future__ import annotations

from sandlot_contract.verdicts import SandboxVerdict
from sandlot_kube import clock
from sandlot_kube.objects import Pod, Sandbox

from sandlot_controller.api import Api
from sandlot_controller.departures import Departures
from sandlot_controller.metrics import Metrics
from sandlot_controller.removal import Removal
from sandlot_controller.settings import Settings
from sandlot_controller.world import World


class Endings:
    """`seen` and `gone` are called for every event of a Sandbox and return at once; each step is idempotent."""

    def __init__(self, world: World, api: Api, *, settings: Settings, metrics: Metrics) -> None:
        self._world = world
        self._metrics = metrics
        self._removal = Removal(api, retention=settings.retention)
        self._since = api.client.now() - 1.0  # an end's time has whole seconds
        self._told: set[str] = set()  # ended ones
        self._departures = Departures(api)
        world.pod_listeners.append(self._on_pod)
        world.sandbox_listeners.append(self._on_sandbox)

    async def run(self) -> None:
        """Until cancelled: removes what was kept long enough."""
        try:
            await self._removal.run()
        finally:
            await self._departures.close()

    def seen(self, sandbox: Sandbox) -> None:
        """Added or changed."""
        if sandbox.status.phase != "Ended":
            return
        name, status = sandbox.metadata.name, sandbox.status
        if name not in self._told:
            self._told.add(name)
            # Those that ended before us were counted then.
            if (clock.seconds(status.ended_at) or 0.0) >= self._since:
                self._metrics.ended.labels(status.verdict).inc()
        self._removal.keep(sandbox)
        self._take_pod(sandbox)

    def gone(self, sandbox: Sandbox) -> None:
        self._told.discard(sandbox.metadata.name)
        self._removal.gone(sandbox)
        self._take_pod(sandbox)

    def _on_sandbox(self, sandbox: Sandbox, gone: bool) -> None:
        """A deletion that no event tells: it was within a gap between two watches."""
        if gone:
            self.gone(sandbox)

    def _on_pod(self, pod: Pod, gone: bool) -> None:
        """A pod that the watch shows only after its Sandbox has ended."""
        if gone:
            self._departures.gone(pod)
            return
        sandbox = self._world.sandboxes.get(self._world.claims.get(pod.metadata.name, ""))
        if sandbox is not None and sandbox.status.phase == "Ended":
            self._take_pod(sandbox)

    def _take_pod(self, sandbox: Sandbox) -> None:
        pod = self._world.pods.get(sandbox.spec.pod_name or sandbox.metadata.name)
        if pod is None:
            return
        # A lost node cannot say that the pod has ended; without that word the pod would stay for ever.
        lost = (
            sandbox.status.verdict == SandboxVerdict.NODE_LOST
            or pod.spec.node_name in self._world.silent_since
        )
        if lost or pod.metadata.deletion_timestamp is None:
            self._departures.take(pod, now=lost)
