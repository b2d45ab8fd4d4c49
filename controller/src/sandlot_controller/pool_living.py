"""Which pods of each pool live: brought up to date by what the watches tell, so that a plan costs what has changed."""

from __future__ import annotations

from collections.abc import Callable

from sandlot_contract import names
from sandlot_kube.objects import Pod

from sandlot_controller import pod as pods
from sandlot_controller import pool_starts
from sandlot_controller.pool_deaths import PoolDeaths
from sandlot_controller.pool_pods import PodView, PoolPods
from sandlot_controller.world import World


class Living:
    """`claimed` hears of each pod that has a Sandbox, `ready` of each that is ready, both perhaps again and again."""

    def __init__(
        self,
        world: World,
        deaths: PoolDeaths,
        *,
        claimed: Callable[[str, str], None],
        ready: Callable[[str, str], None],
    ) -> None:
        self._world = world
        self._deaths = deaths
        self._claimed = claimed
        self._ready = ready
        self._pools: dict[str, PoolPods] = {}
        self._pool_of: dict[str, str] = {}
        self._changed: set[str] = set()
        # Those that time alone may change: starts that may come to nothing, and pods of nodes that are silent.
        self._watched: set[str] = set()
        world.pod_listeners.append(lambda pod, _: self.changed(pod.metadata.name))
        world.claim_listeners.append(self.changed)

    def changed(self, pod: str) -> None:
        """Something about it is to be looked at."""
        self._changed.add(pod)

    def now(self, now: float) -> dict[str, PoolPods]:
        """By pool. Dead ones that nobody owns are taken away in passing."""
        looked, self._changed, self._watched = self._changed | self._watched, set(), set()
        for name in looked:
            self._look(name, now=now)
        return self._pools

    def _look(self, name: str, *, now: float) -> None:
        pod = self._world.pods.get(name)
        pool = None if pod is None else pod.metadata.labels.get(names.LABEL_POOL)
        if pod is None or pool is None:
            self._drop(name)
            return
        if pod.metadata.deletion_timestamp is not None:
            self._drop(name)
            self._deaths.let_go(pod, now=now)
            if not self._is_well(pod):
                self._watched.add(name)
            return
        if name in self._deaths.leaving:
            self._drop(name)
            return
        if name in self._world.claims:
            self._claimed(name, pool)
        else:
            if name not in self._world.ready_since or not self._is_well(pod):
                self._watched.add(name)
            if self._deaths.dead(pod, pool, now=now):
                self._watched.add(name)
                self._drop(name)
                return
        if name in self._world.ready_since:
            self._ready(name, pool)
        self._pool_of[name] = pool
        self._pools.setdefault(pool, PoolPods()).put(self._view(pod, now=now))

    def _drop(self, name: str) -> None:
        pool = self._pool_of.pop(name, None)
        if pool is None:
            return
        self._pools[pool].drop(name)
        if not self._pools[pool]:
            del self._pools[pool]

    def _is_well(self, pod: Pod) -> bool:
        """Whether its node, if it has one, is there and speaks."""
        node = pod.spec.node_name
        return node is None or (node in self._world.nodes and node not in self._world.silent_since)

    def _view(self, pod: Pod, *, now: float) -> PodView:
        name = pod.metadata.name
        return PodView(
            name,
            pod.metadata.annotations.get(pods.ANNOTATION_BUILD, ""),
            since=self._world.first_seen.get(name, now),
            node=pod.spec.node_name,
            ready_since=self._world.ready_since.get(name),
            claimed=self._world.claimed(name),
            askable=pod.status.pod_ip is not None,
            unschedulable=pool_starts.unschedulable(pod),
            avoids=pods.avoided(pod.metadata),
        )
