"""Nodes that follow demand, in small: none takes a sandbox with it, idle ones go, and a drained one empties in use."""

from __future__ import annotations

import os
import tempfile

import pytest

from loadtests.autoscale import SPEC
from loadtests.bounds import read_bounds
from loadtests.cluster.autoscale import PROGRAMS, ROWS, Size, Wave, autoscale
from loadtests.cluster.simulated_cluster import why_not
from loadtests.processes import with_mark

pytestmark = [
    pytest.mark.programs,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(why_not(*PROGRAMS)), reason=str(why_not(*PROGRAMS))),
]


async def test_nodes_follow_demand_and_take_no_sandbox_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    size = Size(
        waves=(Wave(16, 0.0), Wave(0, 60.0)),
        per_node=4,
        command=0.5,
        delay=2.0,
        unneeded=1.0,
        grace=1.0,
    )
    with tempfile.TemporaryDirectory(prefix="sandlot-") as home:
        monkeypatch.setattr(tempfile, "tempdir", home)
        found = await autoscale(size)
        assert with_mark(home) == []
        assert os.listdir(home) == []
    assert tuple(found) == ROWS == tuple(read_bounds(SPEC))
    lost = found["lost"]
    assert lost.value == 0, lost.parts
    assert int(lost.parts["sandboxes"]) > 30
    assert int(lost.parts["nodes added"]) >= 5
    assert found["freed"].value < 60, found["node_time"].parts
    # Two warm sandboxes are left, and at most one that is being replaced.
    left = found["freed"].parts["nodes left"]
    assert int(left) <= 3 < int(lost.parts["nodes added"]), found["node_time"].parts
    assert found["drained"].value < 30
    assert int(found["up_wait"].parts["starts of a node at once"]) <= 8  # a setting of the controller
