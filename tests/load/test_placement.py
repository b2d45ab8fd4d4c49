"""The simulation of placement: its rows hold their bounds, and in small its policies differ as they should."""

from __future__ import annotations

from loadtests.bounds import read_bounds
from loadtests.placement.rows import ROWS, placement
from loadtests.placement.simulation import CAP, POLICIES, Simulation


def test_the_rows_of_the_benchmark_are_held() -> None:
    found = placement()  # in full: on fewer nodes, fewer have a rare image than the bound of images is about
    assert tuple(found) == ROWS
    bounds = read_bounds()
    for name, reading in found.items():
        assert bounds[name].held(reading.value), (name, reading)


def test_policies_differ_as_they_should() -> None:
    ours, spread, packed = (Simulation(policy, nodes=200, slots=2000).run() for policy in POLICIES)
    assert ours.most_starting <= CAP < packed.most_starting
    for outcome in (ours, spread, packed):
        assert len(outcome.waits) >= 2 * 2000 * 0.8, "some 2,000 were replaced"
        assert all(1 / 200 <= outcome.packing(part) <= 1 for part in ("burst", "churn", "shrink"))
    assert max(ours.waits[:2000]) < max(packed.waits[:2000])
    assert ours.packing("churn") > spread.packing("churn")
    assert ours.packing("shrink") > max(spread.packing("shrink"), packed.packing("shrink"))
