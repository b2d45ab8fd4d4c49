"""The controller as a whole: acquires the Lease, lists the resources, then runs every loop until cancelled."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from sandlot_contract.keyring import KeyringFiles
from sandlot_kube.client import KubeClient

from . import health, kopf_runs
from .act.api import Api
from .act.ended_sandboxes import EndedSandboxes
from .act.kept_slots import KeptSlots
from .act.lost_nodes import LostNodes
from .act.node_agents import NodeAgents
from .act.node_choices import NodeChoices
from .act.node_drains import NodeDrains
from .act.pod_deletion import PodDeletion
from .act.pod_replacement import PodReplacement
from .act.pools import PoolLoop
from .act.sandboxes import SandboxLoop
from .act.sidecar_tls import sidecar_tls
from .act.sidecars import Sidecars
from .act.unrecorded_claims import UnrecordedClaims
from .act.warmups import WarmupLoop
from .act.webhook_address import with_webhook_address
from .kopf_watches import KopfWatches
from .leader import Leader
from .metrics import Metrics
from .settings import Settings
from .tokens import InstanceTokens
from .trial import Trial
from .world.listing import Followed, ListsFailed, listed, unreadable
from .world.world import World

_log = logging.getLogger(__name__)
_STUCK = 180.0  # seconds without a plan; one is computed at least every minute


class Controller:
    def __init__(
        self,
        client: KubeClient,
        settings: Settings,
        *,
        sidecars: Sidecars | None = None,
        agents: NodeAgents | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] | None = None,
    ) -> None:
        """`clock`: monotonic. `now`: Unix seconds by the API server's clock; None: as the client knows it."""
        self.settings = settings
        self.metrics = Metrics()
        self.working = asyncio.Event()  # we hold the Lease and all resources have been listed
        self.port: int | None = None  # of the health server
        self._client = client
        self._clock = clock
        self._now = now
        self._tokens = InstanceTokens.from_file(settings.key_file)
        self._sidecars = sidecars or Sidecars(tls=sidecar_tls(settings))
        self._agents = agents or NodeAgents(settings.node_agent_token_file)
        self._pools: PoolLoop | None = None
        self._followed: list[Followed] = []  # as the leader, or tried as a standby
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
            trouble=lambda: unreadable(self._followed),
        ) as self.port:
            files = KeyringFiles(settings.key_file, failing=self.metrics.reload_failing)
            following = asyncio.create_task(files.follow(self._tokens.use, used=self._tokens.keys))
            try:
                pause = 0.0
                while True:
                    await self._lead(pause)
                    # The next try is another controller's, if there is one.
                    pause = settings.lease_seconds / 2
            finally:
                following.cancel()
                await asyncio.wait([following])
                await self._sidecars.close()
                await self._agents.close()

    async def _lead(self, pause: float) -> None:
        """Acquire the Lease after a pause and work. Returns after giving it up because a resource cannot be read."""
        # In a task of its own: a task group that has failed drops a cancellation of its task that comes meanwhile.
        term = asyncio.create_task(self._term(pause), name="term")
        try:
            await asyncio.wait([term])
        finally:
            term.cancel()
            await asyncio.wait([term])
        term.result()

    async def _term(self, pause: float) -> None:
        try:
            await self._stand_by(pause)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._leader.hold(), name="lease")
                group.create_task(self._work(), name="work")
        except* (ListsFailed, kopf_runs.KopfGivenUp):
            _log.info("%s gives up the Lease %s", self.identity, self.settings.lease_name)
        finally:
            self.working.clear()
            self.metrics.end_term()
            self._follow([])
            # Last, since the next leader begins at once and must not meet our writes.
            await self._leader.release()

    async def _stand_by(self, pause: float) -> None:
        """Acquire the Lease after a pause; until then, tell what we could not read as the leader."""
        trial = Trial(self._client, namespace=self.settings.namespace, lease=self._leader.path)
        self._follow(trial.resources)
        async with asyncio.TaskGroup() as group:
            trying = group.create_task(self._try(trial), name="trial")
            await asyncio.sleep(pause)
            await self._leader.acquire()
            trying.cancel()

    async def _try(self, trial: Trial) -> None:
        await self._leader.standing_by.wait()
        await trial.run()

    def _follow(self, followed: Sequence[Followed]) -> None:
        """Let /readyz and the metric tell of these."""
        self._followed = list(followed)
        self.metrics.watch_failing.clear()
        for one in followed:
            resource = "kopf" if isinstance(one, KopfWatches) else one.path.rpartition("/")[2]
            self.metrics.show_watch(resource, failing=lambda one=one: one.failure is not None)

    async def _work(self) -> None:
        # For each term: the Service may have been made anew since the last one.
        settings = await with_webhook_address(self.settings, client=self._client)
        world = World(clock=self._clock)
        api = Api(self._client, namespace=self.settings.namespace, metrics=self.metrics, now=self._now)
        # First, so that all others see the nodes and pods as they are by then.
        choices = NodeChoices(world, settings=settings, metrics=self.metrics)
        deletion = PodDeletion(world, api)
        replacement = PodReplacement(world, choices=choices, deletion=deletion)
        try:
            await self._run_loops(settings, world, api, choices, deletion, replacement)
        finally:
            await replacement.close()
            await deletion.close()
            # A pod that appears after the next leader has listed them would be one start too many.
            await api.settle(seconds=self.settings.lease_seconds / 4)

    async def _run_loops(
        self,
        settings: Settings,
        world: World,
        api: Api,
        choices: NodeChoices,
        deletion: PodDeletion,
        replacement: PodReplacement,
    ) -> None:
        metrics, tokens, sidecars = self.metrics, self._tokens, self._sidecars
        sandboxes = SandboxLoop(
            world,
            api,
            choices=choices,
            deletion=deletion,
            replacement=replacement,
            settings=settings,
            tokens=tokens,
            metrics=metrics,
        )
        pools = self._pools = PoolLoop(
            world,
            api,
            choices=choices,
            deletion=deletion,
            replacement=replacement,
            settings=settings,
            tokens=tokens,
            sidecars=sidecars,
            metrics=metrics,
        )
        ended = EndedSandboxes(
            world,
            api,
            deletion=deletion,
            settings=settings,
            tokens=tokens,
            sidecars=sidecars,
            metrics=metrics,
        )
        unrecorded = UnrecordedClaims(
            world, deletion=deletion, settings=settings, tokens=tokens, sidecars=sidecars
        )
        lost = LostNodes(world, api, settings=settings)
        kept = KeptSlots(world, deletion=deletion, settings=settings, tokens=tokens, sidecars=sidecars)
        drains = NodeDrains(world, deletion=deletion, tokens=tokens, sidecars=sidecars)
        warmups = WarmupLoop(api, agents=self._agents, settings=settings, now=world.clock)
        reflectors = world.reflectors(self._client, namespace=settings.namespace)
        kopf_watches = KopfWatches(settings.namespace)
        self._follow([*reflectors, kopf_watches])
        async with AsyncExitStack() as after, asyncio.TaskGroup() as group:
            after.push_async_callback(ended.close)
            after.push_async_callback(drains.close)
            for reflector in reflectors:
                group.create_task(reflector.run(), name=reflector.path)
            # A plan over half of the pods would create the other half again.
            try:
                await listed(reflectors, timeout=settings.list_timeout)
            except ListsFailed as error:
                _log.error("cannot lead: %s", error)
                raise
            group.create_task(lost.run(), name="lost nodes")
            group.create_task(sandboxes.run(), name="sandboxes")
            group.create_task(unrecorded.run(), name="unrecorded claims")
            await unrecorded.settled.wait()
            group.create_task(pools.run(), name="pools")
            group.create_task(ended.run(), name="ended sandboxes")
            group.create_task(kept.run(), name="kept slots")
            group.create_task(warmups.run(), name="image warm-ups")
            group.create_task(
                kopf_runs.run(
                    ended,
                    warmups,
                    kopf_watches,
                    api=api,
                    access=self._client.access,
                    patience=settings.list_timeout,
                ),
                name="kopf",
            )
            metrics.leader.set(1)
            self.working.set()
            _log.info("%s leads in namespace %s", self.identity, settings.namespace)

    def _stuck(self) -> str | None:
        if self._pools is not None and self.working.is_set():
            silent = self._clock() - self._pools.beat
            if silent > _STUCK:
                return f"no plan was computed for {silent:.0f} s"
        return None
