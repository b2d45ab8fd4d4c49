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
    size = Size(nodes=1, start=1.0, below=(0.5, 2.0), above=(4.0, 3.0), most_waiting=40)
    found = await start_ready(size)
    assert tuple(found) == ROWS
    assert found["start_ready_starts"].value <= 1
    told = found["start_ready_told"]
    assert int(told.parts["places told"]) > 20
    assert int(told.parts["refused"]) >= 1
    assert float(told.parts["within 2 ×"].rstrip("%")) > 30, told.parts
