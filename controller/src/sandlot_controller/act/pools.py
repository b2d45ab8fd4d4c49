"""Keeps every SandboxPool at its size: carries out what the plan creates and retires."""

from __future__ import annotations

import asyncio
import logging

from sandlot_contract import names
from sandlot_contract.reuse import ReusePolicy
from sandlot_contract.verdicts import SandboxVerdict
from sandlot_kube import reuse
from sandlot_kube.objects import Pod, SandboxPoolSpec
from sandlot_kube.waiting import wait_set

from ..metrics import Metrics
from ..plan import pod as pods
from ..plan.placement.needs import Needs
from ..plan.pool_pods import PoolPods
from ..plan.pools import Planner, PlanSettings, PoolView
from ..plan.status import PoolCounts
from ..settings import Settings
from ..tokens import InstanceTokens
from ..world.world import World
from .api import Api
from .live_pods import LivePods, Look
from .node_choices import NodeChoices
from .pod_deletion import PodDeletion
from .pod_replacement import PodReplacement
from .pool_demand import Demands
from .pool_retirement import PoolRetirement
from .pool_starts import PoolStarts
from .pool_status import PoolStatuses
from .sidecars import Sidecars

_log = logging.getLogger(__name__)
_BEAT = 0.02  # seconds between two plans, so that a burst of events is one plan
_REST = 60.0  # an autoscaled size shrinks without any event
_NOTHING = Needs(())


class PoolLoop:
    """Control loop of all pools; `beat` is the monotonic time of the last plan, for the health check."""

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
        sidecars: Sidecars,
        metrics: Metrics,
    ) -> None:
        self._world = world
        self._choices = choices
        self._deletion = deletion
        self._replacement = replacement
        self._settings = settings
        self._metrics = metrics
        self._planner = Planner(
            PlanSettings(
                starts_per_node=settings.starts_per_node,
                backoff=settings.backoff,
                max_backoff=settings.max_backoff,
            )
        )
        self._demands = Demands(world)
        self._statuses = PoolStatuses(
            api,
            interval=settings.status_interval,
            metrics=metrics,
            clock=world.clock,
            look=world.changed.set,
        )
        self._pods = LivePods(
            world,
            settings=settings,
            is_deleted=deletion.is_asked,
            claimed=self._claimed,
            released=self._demands.released,
            ready=self._ready,
        )
        self._starts = PoolStarts(
            world, api, planner=self._planner, choices=choices, settings=settings, tokens=tokens
        )
        self._retirement = PoolRetirement(
            world,
            planner=self._planner,
            deletion=deletion,
            sidecars=sidecars,
            tokens=tokens,
            changed=self._pods.changed,
        )
        self._tokens = tokens
        self._builds: dict[
            str, tuple[SandboxPoolSpec, str, str]
        ] = {}  # by pool: its spec, the key's id, the build
        self._measured: set[str] = set()
        self.beat = world.clock()
        world.pod_listeners.append(self._on_pod)

    async def run(self) -> None:
        """Run until cancelled; call this after the watches are synced."""
        self._demands.begin()
        self._tokens.changed.append(self._world.changed.set)  # to replace pods
        try:
            while True:
                self._world.changed.clear()
                with self._metrics.plan_seconds.time():
                    due = self._round()
                await asyncio.sleep(_BEAT)
                await wait_set(self._world.changed, seconds=max(0.0, min(due - self._world.clock(), _REST)))
        finally:
            self._tokens.changed.remove(self._world.changed.set)
            await self._starts.close()
            await self._retirement.close()
            await self._statuses.close()

    def _on_pod(self, pod: Pod, gone: bool) -> None:
        name = pod.metadata.name
        if (pool := pod.metadata.labels.get(names.LABEL_POOL)) is not None:
            self._planner.seen(pool, name)
        if gone:
            self._demands.pod_gone(name)
            self._measured.discard(name)

    # One round.

    def _round(self) -> float:
        """Plan once and carry it out; return when the next round is due at the latest."""
        now = self._world.clock()
        self.beat = now
        look = self._pods.look(now)
        self._delete_dead(look, now=now)
        for pod in look.rejected:
            self._replacement.replace(pod)
        due = [now + _REST, *look.due]
        if (again_at := self._choices.refresh(now)) is not None:
            due.append(again_at)
        # Pools with a resource, and those of which only pods are left.
        names = sorted(self._world.pools.keys() | look.pools.keys())
        views = [self._view(name, look.pools.get(name) or PoolPods(), now=now) for name in names]
        plan = self._planner.plan(
            views, ledger=self._choices.ledger, now=now, shown_since=self._world.complete_since(Pod)
        )
        for start in plan.creates:
            self._starts.begin(self._world.pools[start.pool], node=start.node)
        # After these starts: what is left of the nodes is for pods that wait.
        self._replacement.replace_waiting()
        for name, view in plan.retire:
            self._retirement.begin(name, self._world.pods[view.name])
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

    def _delete_dead(self, look: Look, *, now: float) -> None:
        for pod, pool, verdict in look.dead:
            # A reused pod that had been ready has died of its use.
            used = reuse.is_reused(pod) and pod.metadata.name in self._world.ready_since
            if not used and self._planner.died(pool, verdict, now=now):
                _log.warning("pool %s: %s: %s: %s", pool, pod.metadata.name, verdict.verdict, verdict.message)
            self._world.remember(pod.metadata.name, verdict)
            if verdict.verdict == SandboxVerdict.NODE_LOST:
                self._deletion.delete(pod, force=True)
            elif pod.status.terminal:  # it holds nothing of its node any more
                self._deletion.delete_in_batch(pod)
            else:
                self._deletion.delete(pod)
        for pod in look.abandoned:
            self._deletion.delete(pod, force=True)

    def _claimed(self, name: str, pool: str) -> None:
        now = self._world.clock()
        if self._demands.claimed(name, pool, now=now):
            self._planner.claimed(pool, now=now)

    def _ready(self, name: str, pool: str) -> None:
        if name in self._measured:
            return
        self._measured.add(name)
        since, first_seen = self._world.ready_since[name], self._world.pod_seen[name]
        if since > first_seen:  # otherwise it is older than this controller
            self._metrics.starts.labels("pool").observe(since - first_seen)
            self._demands.of(pool).started(seconds=since - first_seen)

    def _view(self, name: str, living: PoolPods, *, now: float) -> PoolView:
        pool = self._world.pools.get(name)
        if pool is None or pool.metadata.deletion_timestamp is not None:
            return PoolView(name, "", 0, living, _NOTHING)
        spec = pool.spec
        size = spec.size or 0
        if spec.size is None and spec.min_size is not None and spec.max_size is not None:
            size = self._demands.of(name).size(least=spec.min_size, most=spec.max_size, now=now)
        reused = spec.reuse.policy == ReusePolicy.TENANT
        return PoolView(
            name,
            self._build(name, spec),
            size,
            living,
            self._choices.needs(spec.template),
            admitted=self._choices.is_admitted(spec.template),
            quiet=self._settings.surplus_grace if reused else 0.0,
        )

    def _build(self, name: str, spec: SandboxPoolSpec) -> str:
        known, key_id = self._builds.get(name), self._tokens.signing_id
        wanted = spec.template, spec.reuse, key_id
        if known is None or (known[0].template, known[0].reuse, known[1]) != wanted:
            build = pods.build(spec.template, settings=self._settings, policy=spec.reuse, key_id=key_id)
            known = self._builds[name] = spec, key_id, build
        return known[2]

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
