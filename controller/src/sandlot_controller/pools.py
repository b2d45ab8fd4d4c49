"""Keeps every SandboxPool at its size: asks the plan what is missing or too much, and does that."""

from __future__ import annotations

import asyncio
import logging
import secrets

from sandlot_kube import names
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import Pod, SandboxPool
from sandlot_kube.waiting import wait_set

from sandlot_controller import pod as pods
from sandlot_controller import pool_starts
from sandlot_controller.api import Api
from sandlot_controller.metrics import Metrics
from sandlot_controller.pool_deaths import PoolDeaths
from sandlot_controller.pool_demand import Demands
from sandlot_controller.pool_plan import Planner, PlanSettings, PodView, PoolView
from sandlot_controller.pool_status import PoolStatuses
from sandlot_controller.retry import until_done
from sandlot_controller.settings import Settings
from sandlot_controller.sidecar import Sidecars, SidecarUnreachable
from sandlot_controller.status import PoolCounts
from sandlot_controller.tasks import Tasks
from sandlot_controller.tokens import InstanceTokens
from sandlot_controller.world import World

_log = logging.getLogger(__name__)
_BEAT = 0.02  # seconds between two plans; a burst of events is one plan
_REST = 60.0  # an autoscaled size goes down without an event


class PoolLoop:
    """`beat` is the monotonic time of the last plan, for the health check."""

    def __init__(
        self,
        world: World,
        api: Api,
        *,
        settings: Settings,
        tokens: InstanceTokens,
        sidecars: Sidecars,
        metrics: Metrics,
    ) -> None:
        self._world = world
        self._api = api
        self._settings = settings
        self._tokens = tokens
        self._sidecars = sidecars
        self._metrics = metrics
        self._tasks = Tasks()
        self._planner = Planner(
            PlanSettings(
                starts_per_node=settings.starts_per_node,
                backoff=settings.backoff,
                max_backoff=settings.max_backoff,
            )
        )
        self._demands = Demands(world)
        self._deaths = PoolDeaths(world, api, planner=self._planner, settings=settings)
        self._statuses = PoolStatuses(
            api,
            interval=settings.status_interval,
            metrics=metrics,
            clock=world.clock,
            look=world.changed.set,
        )
        self._measured: set[str] = set()
        self.beat = world.clock()
        world.pod_listeners.append(self._on_pod)

    async def run(self) -> None:
        """Until cancelled. Call it when the watches are synced."""
        self._demands.begin()
        try:
            while True:
                self._world.changed.clear()
                with self._metrics.plan_seconds.time():
                    due = self._round()
                await asyncio.sleep(_BEAT)
                await wait_set(self._world.changed, seconds=max(0.0, min(due - self._world.clock(), _REST)))
        finally:
            await self._tasks.close()
            await self._deaths.close()
            await self._statuses.close()

    def _on_pod(self, pod: Pod, gone: bool) -> None:
        name = pod.metadata.name
        if (pool := pod.metadata.labels.get(names.LABEL_POOL)) is not None:
            self._planner.seen(pool, name)
        if gone:
            self._demands.pod_gone(name)
            self._deaths.gone(name)
            self._measured.discard(name)

    # One round.

    def _round(self) -> float:
        """Returns when the next one is due at the latest."""
        now = self._world.clock()
        self.beat = now
        self._deaths.due = due = [now + _REST]
        living = self._living(now=now)
        views = [self._view(name, living.get(name, []), now=now) for name in self._names(living)]
        starting = pool_starts.by_node(self._world, settings=self._settings)
        plan = self._planner.plan(
            views, starting=starting, unplaced=pool_starts.unplaced(self._world), now=now
        )
        for name in plan.creates:
            self._begin(name, plan.avoid)
        for name, view in plan.retire:
            self._planner.retiring(name, view.name)
            self._tasks.spawn(f"retire {view.name}", self._retire(name, self._world.pods[view.name]))
        for view in views:
            if (pool := self._world.pools.get(view.name)) is not None:
                again_at = self._statuses.tell(pool, self._counts(view), now=now)
                due += [] if again_at is None else [again_at]
        self._statuses.keep(self._world.pools.keys())
        self._demands.keep(self._world.pools.keys())
        if plan.again_at is not None:
            due.append(plan.again_at)
        return min(due)

    def _names(self, living: dict[str, list[PodView]]) -> list[str]:
        """Those with a resource, and those of which only pods are left."""
        return sorted(self._world.pools.keys() | living.keys())

    def _living(self, *, now: float) -> dict[str, list[PodView]]:
        """The pods of each pool; dead ones that nobody owns are taken away in passing."""
        living: dict[str, list[PodView]] = {}
        for name, pod in list(self._world.pods.items()):
            pool = pod.metadata.labels.get(names.LABEL_POOL)
            if pool is None:
                continue
            if pod.metadata.deletion_timestamp is not None:
                self._deaths.let_go(pod, now=now)
                continue
            if name in self._deaths.leaving:
                continue
            claimed = self._world.claimed(name)
            if name in self._world.claims:
                if self._demands.claimed(name, pool, now=now):
                    self._planner.claimed(pool, now=now)
            elif self._deaths.dead(pod, pool, now=now):
                continue
            living.setdefault(pool, []).append(self._pod_view(pod, claimed=claimed, now=now))
        return living

    def _pod_view(self, pod: Pod, *, claimed: bool, now: float) -> PodView:
        name = pod.metadata.name
        since = self._world.ready_since.get(name)
        first_seen = self._world.first_seen.get(name, now)
        if since is not None and name not in self._measured:
            self._measured.add(name)
            if since > first_seen:  # else it was there before us
                self._metrics.starts.labels("pool").observe(since - first_seen)
                self._demands.of(pod.metadata.labels[names.LABEL_POOL]).started(seconds=since - first_seen)
        return PodView(
            name,
            pod.metadata.annotations.get(pods.ANNOTATION_BUILD, ""),
            age=now - first_seen,
            node=pod.spec.node_name,
            ready_since=since,
            claimed=claimed,
            askable=pod.status.pod_ip is not None,
            unschedulable=pool_starts.unschedulable(pod),
            avoids=pods.avoided(pod.metadata),
        )

    def _view(self, name: str, living: list[PodView], *, now: float) -> PoolView:
        pool = self._world.pools.get(name)
        if pool is None or pool.metadata.deletion_timestamp is not None:
            return PoolView(name, "", 0, living)
        spec = pool.spec
        size = spec.size or 0
        if spec.size is None and spec.min_size is not None and spec.max_size is not None:
            size = self._demands.of(name).size(least=spec.min_size, most=spec.max_size, now=now)
        return PoolView(name, pods.build(spec.template, settings=self._settings), size, living)

    def _counts(self, view: PoolView) -> PoolCounts:
        free = [pod for pod in view.pods if not pod.claimed]
        failures, message = self._planner.trouble(view.name)
        if message is None and (stuck := next((pod for pod in free if pod.unschedulable), None)) is not None:
            condition = self._world.pods[stuck.name].condition("PodScheduled")
            message = condition.message if condition else None
        return PoolCounts(
            size=view.size,
            ready=sum(pod.ready_since is not None for pod in free),
            starting=sum(pod.ready_since is None for pod in free),
            claimed=sum(pod.claimed for pod in view.pods),
            failures=failures,
            message=message,
        )

    # New ones, and those that are too many.

    def _begin(self, pool_name: str, avoid: tuple[str, ...]) -> None:
        pool = self._world.pools[pool_name]
        name = f"i-{secrets.token_hex(8)}"
        self._planner.expect(pool_name, name, now=self._world.clock())
        self._tasks.spawn(f"create {name}", self._create(pool, name, avoid))

    async def _create(self, pool: SandboxPool, name: str, avoid: tuple[str, ...]) -> None:
        token = self._tokens.instance(name)
        body = pods.pool_pod(pool, instance_id=name, token=token, settings=self._settings, avoid=avoid)
        pool_name = pool.metadata.name

        async def once() -> None:
            # While the API server is away the request is repeated under its name, and stays expected.
            self._planner.expect(pool_name, name, now=self._world.clock())
            await self._api.create_pod(body, kind="pool")

        try:
            await until_done(once)
        except KubeError as error:
            self._planner.seen(pool_name, name)
            self._planner.failed(pool_name, now=self._world.clock(), message=f"no pod could be made: {error}")
            self._world.changed.set()

    async def _retire(self, pool: str, pod: Pod) -> None:
        name, gone = pod.metadata.name, False
        try:
            gone = await self._ask(pod)
            if gone:
                self._deaths.asked.add(name)
        except SidecarUnreachable as error:
            _log.info("pool %s: %s stays for now: %s", pool, name, error)
        except KubeError as error:
            _log.warning("pool %s: %s could not be deleted: %s", pool, name, error)
        finally:
            self._planner.retired(pool, name, gone=gone, now=self._world.clock())
            self._world.changed.set()

    async def _ask(self, pod: Pod) -> bool:
        """Whether it is on its way out."""
        name = pod.metadata.name
        if pod.spec.node_name is None:
            # Nothing runs there yet, unless the scheduler has found a node in this moment.
            gone = await self._api.delete_pod(pod, unchanged=True)
            if gone:
                self._deaths.leaving.add(name)
            return gone
        assert pod.status.pod_ip is not None
        if not await self._sidecars.end_if_unclaimed(pod.status.pod_ip, token=self._tokens.instance(name)):
            self._world.claimed_by_word(name)
            return False
        self._deaths.take(pod, at_once=False)
        return True
