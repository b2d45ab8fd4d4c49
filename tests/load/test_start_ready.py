"""Cold starts at less and more than what nodes can start, in small: no node starts more at once, and waits are told."""

from __future__ import annotations

import pytest

from loadtests.cluster.simulated_cluster import why_not
from loadtests.cluster.start_ready import ROWS, Size, start_ready

pytestmark = [
    pytest.mark.programs,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(why_not()), reason=str(why_not())),
]


async def test_no_node_starts_more_than_it_may_and_who_waits_is_told() -> None:
    size = Size(nodes=1, start=1.0, half=(0.5, 2.0), above=(4.0, 4.0), full=(1.0, 3.0), most_waiting=40)
    found = await start_ready(size)
    assert tuple(found) == ROWS
    assert found["start_ready_starts"].value <= 1
    # One node starts at most 8 a second; less where a start takes longer than its pod needs.
    rate = float(found["start_ready_p99"].parts["nodes start"].partition("/")[0])
    assert 1 < rate < 9, found["start_ready_p99"].parts
    assert int(found["start_ready_places"].parts["told"]) > 20
    assert found["start_ready_places"].value > 0.3, found["start_ready_places"].parts
    assert int(found["start_ready_waits"].parts["told"]) > 20
    assert int(found["start_ready_refusals"].parts["told"]) >= 1
