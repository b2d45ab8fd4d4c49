"""Measures the demand for each pool: claims of its pods, and cold starts that it was too small for."""

from __future__ import annotations

from collections.abc import Set

import msgspec
from sandlot_kube.objects import Sandbox
from sandlot_kube.template import key

from ..plan.autoscale import Demand
from ..world.world import World


class Demands:
    def __init__(self, world: World) -> None:
        self._world = world
        self._demands: dict[str, Demand] = {}
        self._counted: set[str] = set()  # claimed pods and cold Sandboxes
        self._begun = False
        world.sandbox_listeners.append(self._on_sandbox)

    def begin(self) -> None:
        """Count from now on, and ignore the claims and cold starts from before this controller."""
        self._counted = self._world.claims.keys() | self._world.sandboxes.keys()
        self._begun = True

    def of(self, pool: str) -> Demand:
        return self._demands.setdefault(pool, Demand())

    def claimed(self, pod: str, pool: str, *, now: float) -> bool:
        """Count a claim; return False if it was counted before."""
        if pod in self._counted:
            return False
        self._counted.add(pod)
        self.of(pool).claimed(now=now)
        return True

    def released(self, pod: str) -> None:
        """Count the next claim of a reused pod, too."""
        self._counted.discard(pod)

    def pod_gone(self, pod: str) -> None:
        if pod not in self._world.sandboxes:
            self._counted.discard(pod)

    def keep(self, pools: Set[str]) -> None:
        """Forget other pools."""
        for gone in self._demands.keys() - pools:
            del self._demands[gone]

    def _on_sandbox(self, sandbox: Sandbox, gone: bool) -> None:
        """Count a cold start as a claim of autoscaled pools that could serve it, and were too small for it."""
        name = sandbox.metadata.name
        if gone:
            self._counted.discard(name)
        elif self._begun and sandbox.spec.pod_name is None and name not in self._counted:
            self._counted.add(name)
            template = sandbox.spec.template
            wanted = {key(template), key(msgspec.structs.replace(template, image=""))}
            for pool in self._world.pools.values():
                if pool.spec.size is None and key(pool.spec.template) in wanted:
                    self.of(pool.metadata.name).claimed(now=self._world.clock())
