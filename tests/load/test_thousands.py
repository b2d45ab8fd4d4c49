"""Many sandboxes at once through two gateways, in small: no command is lost or run twice when one is killed."""

from __future__ import annotations

import os
import tempfile

import pytest

from loadtests.bounds import read_bounds
from loadtests.cluster.simulated_cluster import why_not
from loadtests.cluster.thousands import ROWS, Size, thousands
from loadtests.processes import with_mark
from loadtests.thousands import GROUPS, SPEC

pytestmark = [
    pytest.mark.programs,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(why_not()), reason=str(why_not())),
]


def test_every_row_has_a_bound() -> None:
    assert read_bounds(SPEC).keys() == {row for group in GROUPS for row in group.rows}


async def test_a_killed_gateway_loses_no_command_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    # Fewer files than the survivor's connections and its idle ones to all sandboxes would need.
    size = Size(sandboxes=150, callers=8, seconds=1.0, files=360)
    with tempfile.TemporaryDirectory(prefix="sandlot-") as home:
        monkeypatch.setattr(tempfile, "tempdir", home)
        found = await thousands(size)
        assert with_mark(home) == []
        assert os.listdir(home) == []
    assert tuple(found) == ROWS
    lost = found["lost"]
    assert (lost.value, lost.parts["run twice"]) == (0, "0"), lost.parts
    assert int(lost.parts["commands"]) > 2 * size.sandboxes
    assert lost.parts["in flight"] == "150"
    assert len(found["create"].curves["create"]) == len(found["delete"].curves["delete"]) == size.sandboxes
