"""The controller as a whole: acquires the Lease, lists the resources, then runs every loop until cancelled."""

from __future__ import annotations

import asyncio
import logging
import time

from sandlot_kube.client import KubeClient

from . import health, lifecycle
from .act.api import Api
from .act.ended_sandboxes import EndedSandboxes
from .act.pod_deletion import PodDeletion
from .act.pools import PoolLoop
from .act.sandboxes import SandboxLoop
from .act.sidecars import Sidecars
from .act.unrecorded_claims import UnrecordedClaims
from .leader import Leader
from .metrics import Metrics
from .settings import Settings
from .tokens import InstanceTokens
from .world.world import World

_log = logging.getLogger(__name__)
_STUCK = 180.0  # seconds without a plan; one is computed at least every minute


class Controller:
    def __init__(self, client: KubeClient, settings: Settings, *, sidecars: Sidecars | None = None) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.working = asyncio.Event()  # we hold the Lease and all resources have been listed
        self.port: int | None = None  # of the health server
        self._client = client
        self._tokens = InstanceTokens.from_file(settings.key_file)
        self._sidecars = sidecars or Sidecars()
        self._pools: PoolLoop | None = None
        self._leader = Leader(
            client,
            namespace=settings.lease_namespace or client.namespace,
            name=settings.lease_name,
            identity=settings.identity,
            seconds=settings.lease_seconds,
        )

    @property
    def identity(self) -> str:
        return self._leader.identity

    async def run(self) -> None:
        """Run until cancelled. Raises an ExceptionGroup if a part fails, including LeadershipLost."""
        settings = self.settings
        async with health.serving(
            host=settings.health_host,
            port=settings.health_port,
            metrics=self.metrics,
            alive=self._stuck,
        ) as self.port:
            try:
                await self._leader.acquire()
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._leader.hold(), name="lease")
                    group.create_task(self._work(), name="work")
            finally:
                self.working.clear()
                self.metrics.leader.set(0)
                # Last, since the next leader begins at once and must not meet our writes.
                await self._leader.release()
                await self._sidecars.close()

    async def _work(self) -> None:
        world = World(clock=time.monotonic)
        api = Api(self._client, namespace=self.settings.namespace, metrics=self.metrics)
        deletion = PodDeletion(world, api)
        try:
            await self._run_loops(world, api, deletion)
        finally:
            await deletion.close()

    async def _run_loops(self, world: World, api: Api, deletion: PodDeletion) -> None:
        settings, metrics, tokens, sidecars = self.settings, self.metrics, self._tokens, self._sidecars
        sandboxes = SandboxLoop(
            world, api, deletion=deletion, settings=settings, tokens=tokens, metrics=metrics
        )
        pools = self._pools = PoolLoop(
            world,
            api,
            deletion=deletion,
            settings=settings,
            tokens=tokens,
            sidecars=sidecars,
            metrics=metrics,
        )
        ended = EndedSandboxes(world, api, deletion=deletion, settings=settings, metrics=metrics)
        unrecorded = UnrecordedClaims(
            world, deletion=deletion, settings=settings, tokens=tokens, sidecars=sidecars
        )
        reflectors = world.reflectors(self._client, namespace=settings.namespace)
        async with asyncio.TaskGroup() as group:
            for reflector in reflectors:
                group.create_task(reflector.run(), name=reflector.path)
            # A plan over half of the pods would create the other half again.
            for reflector in reflectors:
                await reflector.synced.wait()
            group.create_task(sandboxes.run(), name="sandboxes")
            group.create_task(unrecorded.run(), name="unrecorded claims")
            await unrecorded.settled.wait()
            group.create_task(pools.run(), name="pools")
            group.create_task(ended.run(), name="ended sandboxes")
            group.create_task(
                lifecycle.run(ended, access=self._client.access, namespace=settings.namespace),
                name="lifecycle",
            )
            metrics.leader.set(1)
            self.working.set()
            _log.info("%s leads in namespace %s", self.identity, settings.namespace)

    def _stuck(self) -> str | None:
        if self._pools is not None and self.working.is_set():
            silent = time.monotonic() - self._pools.beat
            if silent > _STUCK:
                return f"no plan was computed for {silent:.0f} s"
        return None
