"""The demand for a pool: what was there before this controller is none."""

from __future__ import annotations

import msgspec
import pytest
from sandlot_controller.act.pool_demand import Demands
from sandlot_controller.world.world import World
from sandlot_kube.objects import Sandbox, SandboxPool

TEMPLATE = {"image": "x"}


def cold(name: str, **spec: str) -> Sandbox:
    return msgspec.convert({"metadata": {"name": name}, "spec": {"template": TEMPLATE, **spec}}, Sandbox)


def pool() -> SandboxPool:
    spec = {"template": TEMPLATE, "minSize": 1, "maxSize": 9}
    return msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, SandboxPool)


@pytest.mark.parametrize("pools_first", [True, False])
def test_cold_starts_that_a_new_leader_lists_are_no_demand(pools_first: bool) -> None:
    world = World(clock=lambda: 1.0)
    demands = Demands(world)
    old = [cold("i-1"), cold("sb-2", waitingUntil="2999-01-01T00:00:00Z")]
    lists = [lambda: world.pools_replaced([pool()]), lambda: world.sandboxes_replaced(old)]
    for told in lists if pools_first else lists[::-1]:
        told()
    demands.begin()
    for one in old:
        world.sandbox_changed(one)
    assert demands.of("p").size(least=0, most=9, now=1.0) == 0
    world.sandbox_changed(cold("i-3"))
    assert demands.of("p").size(least=0, most=9, now=1.0) == 1
