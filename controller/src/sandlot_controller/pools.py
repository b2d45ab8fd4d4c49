"""Keeps every SandboxPool at its size: asks the plan what is missing or too much, and does that."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Iterator

from sandlot_kube import names
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import Pod, Sandbox, SandboxPool
from sandlot_kube.template import key

from sandlot_controller import pod as pods
from sandlot_controller import status, verdicts
from sandlot_controller.api import Api
from sandlot_controller.autoscale import Demand
from sandlot_controller.metrics import Metrics
from sandlot_controller.objects import is_usable
from sandlot_controller.pool_plan import Planner, PlanSettings, PodView, PoolView
from sandlot_controller.retry import until_done
from sandlot_controller.settings import Settings
from sandlot_controller.sidecar import Sidecars, SidecarUnreachable
from sandlot_controller.status import PoolCounts
from sandlot_controller.tasks import Tasks, wait_set
from sandlot_controller.tokens import InstanceTokens
from sandlot_controller.verdicts import Verdict
from sandlot_controller.world import World

_log = logging.getLogger(__name__)
_BEAT = 0.02  # seconds between two plans; a burst of events is one plan
_SHOWN = 5.0  # seconds in which the watch shows a write, or the write is done again
_REST = 60.0  # an autoscaled size goes down without an event
# The template's fault, or may be; a lost node or an eviction says nothing about the next start.
_FAILURES = {
    verdicts.IMAGE_PULL,
    verdicts.START_FAILED,
    verdicts.SANDBOX_LOST,
    verdicts.SIDECAR_LOST,
    verdicts.OOM,
}


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
        self._demand: dict[str, Demand] = {}
        self._known: set[str] = set()  # claimed pods, and cold Sandboxes, that were counted as demand
        self._measured: set[str] = set()
        self._leaving: set[str] = set()  # pods whose end is under way
        self._asked: set[str] = set()  # and those of them that end because we asked
        self._status_at: dict[str, float] = {}
        self._written: dict[str, tuple[str, float]] = {}  # over which resource version, and when
        self._due: list[float] = []  # of this plan: when something has to be looked at again
        self.beat = world.clock()
        world.pod_listeners.append(self._on_pod)
        world.sandbox_listeners.append(self._on_sandbox)

    async def run(self) -> None:
        """Until cancelled. Call it when the watches are synced."""
        # What was claimed before us is no demand of now.
        self._known = set(self._world.claims)
        try:
            while True:
                self._world.changed.clear()
                with self._metrics.plan_seconds.time():
                    due = self._round()
                await asyncio.sleep(_BEAT)
                await wait_set(self._world.changed, seconds=max(0.0, min(due - self._world.clock(), _REST)))
        finally:
            await self._tasks.close()

    def _on_sandbox(self, sandbox: Sandbox, gone: bool) -> None:
        """A cold start is a claim, too, that a pool of this template was too small for."""
        name = sandbox.metadata.name
        if gone:
            self._known.discard(name)
        elif sandbox.spec.pod_name is None and name not in self._known:
            self._known.add(name)
            wanted = key(sandbox.spec.template)
            for pool in self._world.pools.values():
                if pool.spec.size is None and key(pool.spec.template) == wanted:
                    self._demand_of(pool.metadata.name).claimed(now=self._world.clock())

    def _on_pod(self, pod: Pod, gone: bool) -> None:
        name = pod.metadata.name
        if (pool := pod.metadata.labels.get(names.LABEL_POOL)) is not None:
            self._planner.seen(pool, name)
        if gone:
            if name not in self._world.sandboxes:
                self._known.discard(name)
            for known in (self._measured, self._leaving, self._asked):
                known.discard(name)

    # One round.

    def _round(self) -> float:
        """Returns when the next one is due at the latest."""
        now = self._world.clock()
        self.beat = now
        self._due = [now + _REST]
        living = self._living(now=now)
        views = [self._view(name, living.get(name, []), now=now) for name in self._names(living)]
        plan = self._planner.plan(views, starting=self._starting(), unplaced=self._unplaced(), now=now)
        for name in plan.creates:
            self._begin(name, plan.avoid)
        for name, view in plan.retire:
            self._planner.retiring(name, view.name)
            self._tasks.spawn(f"retire {view.name}", self._retire(name, self._world.pods[view.name]))
        for view in views:
            if (pool := self._world.pools.get(view.name)) is not None:
                self._tell(pool, view, now=now)
        for gone in self._demand.keys() - self._world.pools.keys():
            del self._demand[gone]
            for state in ("ready", "starting", "claimed", "size"):
                self._metrics.pool.remove(gone, state)
            self._metrics.pool_failures.remove(gone)
            self._status_at.pop(gone, None)
            self._written.pop(gone, None)
        if plan.again_at is not None:
            self._due.append(plan.again_at)
        return min(self._due)

    def _names(self, living: dict[str, list[PodView]]) -> list[str]:
        """Those with a resource, and those of which only pods are left."""
        return sorted(self._world.pools.keys() | living.keys())

    def _living(self, *, now: float) -> dict[str, list[PodView]]:
        """The pods of each pool; dead ones that nobody owns are taken away in passing."""
        living: dict[str, list[PodView]] = {}
        for name, pod in list(self._world.pods.items()):
            pool = pod.metadata.labels.get(names.LABEL_POOL)
            if pool is None or name in self._leaving or pod.metadata.deletion_timestamp is not None:
                continue
            claimed = self._world.claimed(name)
            if name in self._world.claims:
                self._count_claim(name, pool, now=now)
            elif self._dead(pod, pool, now=now):
                continue
            living.setdefault(pool, []).append(self._pod_view(pod, claimed=claimed, now=now))
        return living

    def _pod_view(self, pod: Pod, *, claimed: bool, now: float) -> PodView:
        name = pod.metadata.name
        scheduled = pod.condition("PodScheduled")
        since = self._world.ready_since.get(name)
        first_seen = self._world.first_seen.get(name, now)
        if since is not None and name not in self._measured:
            self._measured.add(name)
            if since > first_seen:  # else it was there before us
                self._metrics.starts.labels("pool").observe(since - first_seen)
                self._demand_of(pod.metadata.labels[names.LABEL_POOL]).started(seconds=since - first_seen)
        return PodView(
            name,
            pod.metadata.labels.get(names.LABEL_TEMPLATE, ""),
            age=now - first_seen,
            node=pod.spec.node_name,
            ready_since=since,
            claimed=claimed,
            askable=pod.status.pod_ip is not None,
            unschedulable=pod.spec.node_name is None
            and scheduled is not None
            and scheduled.reason == "Unschedulable",
            avoids=pods.avoided(pod.metadata),
        )

    def _view(self, name: str, living: list[PodView], *, now: float) -> PoolView:
        pool = self._world.pools.get(name)
        if pool is None or pool.metadata.deletion_timestamp is not None:
            return PoolView(name, "", 0, living)
        spec = pool.spec
        size = spec.size or 0
        if spec.size is None and spec.min_size is not None and spec.max_size is not None:
            size = self._demand_of(name).size(least=spec.min_size, most=spec.max_size, now=now)
        return PoolView(name, key(spec.template), size, living)

    def _starting(self) -> dict[str, int]:
        selector, tolerations = self._settings.node_selector, self._settings.tolerations
        starting = {
            name: 0
            for name, node in self._world.nodes.items()
            if is_usable(node, selector=selector, tolerations=tolerations)
        }
        for pod in self._starts():
            if pod.spec.node_name in starting:
                starting[pod.spec.node_name] += 1
        return starting

    def _unplaced(self) -> int:
        count = 0
        for pod in self._starts():
            if pod.spec.node_name is None:
                scheduled = pod.condition("PodScheduled")
                count += scheduled is None or scheduled.reason != "Unschedulable"
        return count

    def _starts(self) -> Iterator[Pod]:
        for name, pod in self._world.pods.items():
            if name not in self._world.ready_since and pod.status.phase not in ("Failed", "Succeeded"):
                yield pod

    def _count_claim(self, name: str, pool: str, *, now: float) -> None:
        if name not in self._known:
            self._known.add(name)
            self._demand_of(pool).claimed(now=now)

    def _demand_of(self, pool: str) -> Demand:
        return self._demand.setdefault(pool, Demand())

    # Dead ones.

    def _dead(self, pod: Pod, pool: str, *, now: float) -> bool:
        """Whether it counts as gone; it then goes, and the pool backs off if its template may be the cause."""
        name = pod.metadata.name
        found = verdicts.of_pod(pod) or self._late(pod, now=now)
        if found is None:
            return False
        if not found.certain:
            # Its sidecar ended in order: retired by us, or claimed and its record is to come.
            until = self._world.odd_since.setdefault(name, now) + self._settings.end_grace
            if now < until:
                self._due.append(until)
                return True
        if found.certain and found.verdict in _FAILURES and name not in self._asked:
            _log.warning("pool %s: %s: %s: %s", pool, name, found.verdict, found.message)
            self._planner.failed(pool, now=now, message=f"{found.verdict}: {found.message}")
        self._world.remember(name, found)
        self._take(pod, at_once=found.verdict == verdicts.NODE_LOST)
        return True

    def _late(self, pod: Pod, *, now: float) -> Verdict | None:
        name, node = pod.metadata.name, pod.spec.node_name
        if node is None:
            return None
        silent = self._world.silent_since.get(node)
        if silent is not None:
            if now >= silent + self._settings.node_grace:
                return verdicts.of_lost_node(node, seconds=self._settings.node_grace)
            self._due.append(silent + self._settings.node_grace)
        if name not in self._world.ready_since:
            until = self._world.first_seen.get(name, now) + self._settings.start_timeout
            if now >= until:
                return verdicts.of_slow_start(pod, seconds=self._settings.start_timeout)
            self._due.append(until)
        return None

    def _take(self, pod: Pod, *, at_once: bool) -> None:
        name = pod.metadata.name
        if self._tasks.spawn(f"delete {name}", self._delete(pod, at_once=at_once)):
            self._leaving.add(name)

    async def _delete(self, pod: Pod, *, at_once: bool) -> None:
        await until_done(lambda: self._api.delete_pod(pod, now=at_once))

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
                self._asked.add(name)
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
                self._leaving.add(name)
            return gone
        assert pod.status.pod_ip is not None
        if not await self._sidecars.end_if_unclaimed(pod.status.pod_ip, token=self._tokens.instance(name)):
            self._world.words.add(name)
            return False
        self._take(pod, at_once=False)
        return True

    # What is told.

    def _tell(self, pool: SandboxPool, view: PoolView, *, now: float) -> None:
        name = view.name
        free = [pod for pod in view.pods if not pod.claimed]
        failures, message = self._planner.trouble(name)
        if message is None and (stuck := next((pod for pod in free if pod.unschedulable), None)) is not None:
            condition = self._world.pods[stuck.name].condition("PodScheduled")
            message = condition.message if condition else None
        counts = PoolCounts(
            size=view.size,
            ready=sum(pod.ready_since is not None for pod in free),
            starting=sum(pod.ready_since is None for pod in free),
            claimed=sum(pod.claimed for pod in view.pods),
            failures=failures,
            message=message,
        )
        self._demand_of(name)
        for state in ("ready", "starting", "claimed", "size"):
            self._metrics.pool.labels(name, state).set(getattr(counts, state))
        self._metrics.pool_failures.labels(name).set(failures)
        patch = status.pool(pool, counts, now=time.time())
        if patch is None:
            return
        version, at = self._written.get(name, ("", 0.0))
        if version == pool.metadata.resource_version and now < at + _SHOWN:
            self._due.append(at + _SHOWN)
            return
        if not status.urgent(pool, patch):
            due = self._status_at.get(name, 0.0) + self._settings.status_interval
            if now < due:
                self._due.append(due)
                return
        again = self._world.changed.set  # what changed meanwhile found its place taken
        if self._tasks.spawn(f"status {name}", self._patch(pool, patch), then=again):
            self._status_at[name] = now

    async def _patch(self, pool: SandboxPool, patch: status.Patch) -> None:
        await until_done(lambda: self._api.patch_pool_status(pool, patch))
        self._written[pool.metadata.name] = (pool.metadata.resource_version, self._world.clock())
