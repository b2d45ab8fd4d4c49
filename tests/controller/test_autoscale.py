"""How big a pool should be, by what was claimed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from sandlot_controller.plan.autoscale import Demand


def test_a_pool_grows_with_claims_and_shrinks_when_they_stop() -> None:
    demand = Demand()
    demand.started(seconds=4.0)
    assert demand.size(least=1, most=50, now=0.0) == 1
    for number in range(100):
        demand.claimed(now=number / 10)  # ten a second
    grown = demand.size(least=1, most=200, now=10.0)
    assert 55 <= grown <= 61
    assert demand.size(least=1, most=50, now=10.0) == 50
    assert demand.size(least=1, most=200, now=60.0) == grown
    assert demand.size(least=1, most=200, now=200.0) < grown
    assert demand.size(least=1, most=200, now=500.0) == 1


@given(
    claims=st.lists(st.floats(0, 300), max_size=60),
    least=st.integers(0, 20),
    more=st.integers(0, 50),
    seconds=st.floats(0, 1000),
)
def test_a_size_is_within_its_bounds(claims: list[float], least: int, more: int, seconds: float) -> None:
    demand = Demand()
    demand.started(seconds=seconds)
    for now in sorted(claims):
        demand.claimed(now=now)
        assert least <= demand.size(least=least, most=least + more, now=now) <= least + more
