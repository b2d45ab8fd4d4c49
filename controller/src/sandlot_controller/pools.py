"""Keeps every SandboxPool at its size: asks the plan what is missing or too much, and does that."""

from __future__ import annotations

import asyncio
import logging

from sandlot_contract import images, names
from sandlot_contract.ids import new_instance_id
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import Pod, SandboxPool
from sandlot_kube.template import Template
from sandlot_kube.waiting import wait_set

from sandlot_controller import pod as pods
from sandlot_controller import pool_starts
from sandlot_controller.api import Api
from sandlot_controller.metrics import Metrics
from sandlot_controller.pool_deaths import PoolDeaths
from sandlot_controller.pool_demand import Demands
from sandlot_controller.pool_living import Living
from sandlot_controller.pool_plan import Planner, PlanSettings, PoolView
from sandlot_controller.pool_pods import PoolPods
from sandlot_controller.pool_status import PoolStatuses
from sandlot_controller.retry import until_done
from sandlot_controller.settings import Settings
from sandlot_controller.sidecar import Sidecars, SidecarUnreachable
from sandlot_controller.status import PoolCounts
from sandlot_controller.tasks import Tasks
from sandlot_controller.tokens import InstanceTokens
from sandlot_controller.usable_nodes import UsableNodes
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
        self._living = Living(world, self._deaths, claimed=self._claimed, ready=self._ready)
        self._usable = UsableNodes(world, settings=settings)
        self._builds: dict[str, tuple[Template, str]] = {}  # by pool
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
        living = self._living.now(now)
        # Those with a resource, and those of which only pods are left.
        names = sorted(self._world.pools.keys() | living.keys())
        views = [self._view(name, living.get(name) or PoolPods(), now=now) for name in names]
        starting = pool_starts.by_node(self._world, usable=self._usable)
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
        for gone in self._builds.keys() - self._world.pools.keys():
            del self._builds[gone]
        if plan.again_at is not None:
            due.append(plan.again_at)
        return min(due)

    def _claimed(self, name: str, pool: str) -> None:
        now = self._world.clock()
        if self._demands.claimed(name, pool, now=now):
            self._planner.claimed(pool, now=now)

    def _ready(self, name: str, pool: str) -> None:
        if name in self._measured:
            return
        self._measured.add(name)
        since, first_seen = self._world.ready_since[name], self._world.first_seen[name]
        if since > first_seen:  # else it was there before us
            self._metrics.starts.labels("pool").observe(since - first_seen)
            self._demands.of(pool).started(seconds=since - first_seen)

    def _view(self, name: str, living: PoolPods, *, now: float) -> PoolView:
        pool = self._world.pools.get(name)
        if pool is None or pool.metadata.deletion_timestamp is not None:
            return PoolView(name, "", 0, living)
        spec = pool.spec
        size = spec.size or 0
        if spec.size is None and spec.min_size is not None and spec.max_size is not None:
            size = self._demands.of(name).size(least=spec.min_size, most=spec.max_size, now=now)
        return PoolView(name, self._build(name, spec.template), size, living)

    def _build(self, name: str, template: Template) -> str:
        known = self._builds.get(name)
        if known is None or known[0] != template:
            known = self._builds[name] = template, pods.build(template, settings=self._settings)
        return known[1]

    def _counts(self, view: PoolView) -> PoolCounts:
        starting = view.pods.starting
        failures, message = self._planner.trouble(view.name)
        if message is None and (stuck := next((pod for pod in starting.values() if pod.unschedulable), None)):
            condition = self._world.pods[stuck.name].condition("PodScheduled")
            message = condition.message if condition else None
        return PoolCounts(
            size=view.size,
            ready=len(view.pods.ready),
            starting=len(starting),
            claimed=len(view.pods.claimed),
            failures=failures,
            message=message,
        )

    # New ones, and those that are too many.

    def _begin(self, pool_name: str, avoid: tuple[str, ...]) -> None:
        pool = self._world.pools[pool_name]
        name = new_instance_id()
        self._planner.expect(pool_name, name, now=self._world.clock())
        self._tasks.spawn(f"create {name}", self._create(pool, name, avoid))

    async def _create(self, pool: SandboxPool, name: str, avoid: tuple[str, ...]) -> None:
        token = self._tokens.instance(name)
        pool_name = pool.metadata.name
        why = images.refusal(pool.spec.template.image, allowed=self._settings.registries)
        if why is not None:
            self._failed(pool_name, name, message=why)
            return
        body = pods.pool_pod(pool, instance_id=name, token=token, settings=self._settings, avoid=avoid)

        async def once() -> None:
            # While the API server is away the request is repeated under its name, and stays expected.
            self._planner.expect(pool_name, name, now=self._world.clock())
            await self._api.create_pod(body, kind="pool")

        try:
            await until_done(once)
        except KubeError as error:
            self._failed(pool_name, name, message=f"no pod could be made: {error}")

    def _failed(self, pool: str, name: str, *, message: str) -> None:
        self._planner.seen(pool, name)
        self._planner.failed(pool, now=self._world.clock(), message=message)
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
            self._living.changed(name)
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
