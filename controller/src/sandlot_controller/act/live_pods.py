"""Tracks the living pods of each pool incrementally, so that a plan costs only what has changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sandlot_contract import names
from sandlot_kube.objects import Pod
from sandlot_kube.verdicts import Verdict

from ..plan.pod import ANNOTATION_BUILD
from ..plan.pod_life import diagnose
from ..plan.pool_pods import PodView, PoolPods
from ..settings import Settings
from ..world.starts import unschedulable
from ..world.world import World
from . import facts
from .drains import is_drained_of
from .node_choices import is_rejected


@dataclass(frozen=True, slots=True)
class Look:
    pools: dict[str, PoolPods]
    # unclaimed, with their pool and the reason
    dead: list[tuple[Pod, str, Verdict]] = field(default_factory=list)
    abandoned: list[Pod] = field(default_factory=list)  # being deleted, on lost nodes
    rejected: list[Pod] = field(default_factory=list)  # by the scheduler, on the node chosen for them
    due: list[float] = field(default_factory=list)  # when the time alone may change this


class LivePods:
    """Calls `claimed` for pods with a Sandbox, `released` for others and `ready` for ready ones, all perhaps repeatedly."""

    def __init__(
        self,
        world: World,
        *,
        settings: Settings,
        is_deleted: Callable[[Pod], bool],
        claimed: Callable[[str, str], None],
        released: Callable[[str], None] = lambda pod: None,
        ready: Callable[[str, str], None],
    ) -> None:
        """`is_deleted`: whether a deletion was requested, though no watch may have shown it yet."""
        self._world = world
        self._settings = settings
        self._is_deleted = is_deleted
        self._claimed = claimed
        self._released = released
        self._ready = ready
        self._pools: dict[str, PoolPods] = {}
        self._pool_of: dict[str, str] = {}
        self._changed: set[str] = set()
        # Pods that the time alone may change: starts that may fail, and pods on silent nodes.
        self._watched: set[str] = set()
        world.pod_listeners.append(lambda pod, _: self.changed(pod.metadata.name))
        world.claim_listeners.append(self.changed)

    def changed(self, pod: str) -> None:
        """Mark a pod to be looked at."""
        self._changed.add(pod)

    def look(self, now: float) -> Look:
        """Return the pods by pool and what to do; a dead pod is reported until its deletion is requested."""
        looked, self._changed, self._watched = self._changed | self._watched, set(), set()
        seen = Look(self._pools)
        for name in looked:
            pod = self._world.pods.get(name)
            pool = None if pod is None else pod.metadata.labels.get(names.LABEL_POOL)
            if pod is None or pool is None or not self._lives(pod, pool, seen, now=now):
                self._drop(name)
            else:
                self._pool_of[name] = pool
                self._pools.setdefault(pool, PoolPods()).put(self._view(pod))
        return seen

    def _lives(self, pod: Pod, pool: str, seen: Look, *, now: float) -> bool:
        name = pod.metadata.name
        if pod.metadata.deletion_timestamp is not None:
            self._let_go(pod, seen, now=now)
            return False
        if self._is_deleted(pod):
            return False
        if is_rejected(pod):
            seen.rejected.append(pod)
            return False
        if name in self._world.claims:
            self._claimed(name, pool)
        else:
            self._released(name)
            known = facts.of_pod(self._world, pod, node_grace=self._settings.node_grace)
            found = diagnose(known, awaited=False, now=now, settings=self._settings)
            if found.again_at is not None:
                self._watched.add(name)
                seen.due.append(found.again_at)
            if found.verdict is not None:
                self._watched.add(name)
                seen.dead.append((pod, pool, found.verdict))
            if found.ended:
                return False
        if name in self._world.ready_since:
            self._ready(name, pool)
        return True

    def _let_go(self, pod: Pod, seen: Look, *, now: float) -> None:
        """Report a deleted pod of a lost node, which will never confirm its end."""
        due = self._world.node_lost_at(pod.spec.node_name, grace=self._settings.node_grace)
        if due is None:
            return
        self._watched.add(pod.metadata.name)
        if now < due:
            seen.due.append(due)
        else:
            seen.abandoned.append(pod)

    def _drop(self, name: str) -> None:
        pool = self._pool_of.pop(name, None)
        if pool is None:
            return
        self._pools[pool].drop(name)
        if not self._pools[pool]:
            del self._pools[pool]

    def _view(self, pod: Pod) -> PodView:
        name = pod.metadata.name
        drained = is_drained_of(pod, self._world)
        return PodView(
            name,
            "" if drained else pod.metadata.annotations.get(ANNOTATION_BUILD, ""),
            since=self._world.pod_seen[name],
            node=pod.spec.node_name,
            ready_since=self._world.ready_since.get(name),
            claimed=self._world.claimed(name),
            askable=pod.status.pod_ip is not None,
            unschedulable=unschedulable(pod),
        )
