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
    size = Size(nodes=1, start=1.0, half=(0.5, 2.0), above=(4.0, 10.0), full=(1.0, 3.0), most_waiting=40)
    # More arrive than are started and wait, however fast: so the queue is full, and creates are refused.
    assert size.above[0] * size.rate * size.above[1] > size.rate * size.above[1] + size.most_waiting
    found = await start_ready(size)
    assert tuple(found) == ROWS
    assert found["start_ready_starts"].value <= 1
    # One node starts at most 8 a second; less where a start takes longer than its pod needs.
    rate = float(found["start_ready_p99"].parts["nodes start"].partition("/")[0])
    assert 0 < rate < 2 * size.rate, found["start_ready_p99"].parts
    for row in ("start_ready_places", "start_ready_waits", "start_ready_refusals"):
        assert int(found[row].parts["told"]) >= 1, row
        assert 0 <= found[row].value <= 1, row
