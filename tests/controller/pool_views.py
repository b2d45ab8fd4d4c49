"""Pools as the planner sees them."""

from __future__ import annotations

from collections.abc import Iterable

from sandlot_controller.plan.pool_pods import PodView, PoolPods
from sandlot_controller.plan.pools import PoolView

from tests.controller.placing import needs

KEY, NEW = "a" * 16, "b" * 16


def pool_of(
    name: str, build: str, size: int, pods: Iterable[PodView] = (), *, admitted: bool = True
) -> PoolView:
    return PoolView(name, build, size, PoolPods(pods), needs(), admitted=admitted)
