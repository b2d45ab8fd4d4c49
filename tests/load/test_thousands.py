"""Many sandboxes at once through two gateways, in small: no command is lost or run twice when one is killed."""

from __future__ import annotations

import math
import os
import tempfile

import pytest

from loadtests.cluster.simulated_cluster import why_not
from loadtests.cluster.thousands import Size, thousands
from loadtests.cluster.thousands_rows import ROWS
from loadtests.processes import with_mark

pytestmark = [
    pytest.mark.programs,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(why_not()), reason=str(why_not())),
]


async def test_a_killed_gateway_loses_no_command_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    # Fewer files than the survivor's connections and its idle ones to all sandboxes would need, and than it would need
    # for all commands.
    size = Size(sandboxes=150, callers=8, seconds=1.0, files=340)
    with tempfile.TemporaryDirectory(prefix="sandlot-") as home:
        monkeypatch.setattr(tempfile, "tempdir", home)
        found = await thousands(size)
        assert with_mark(home) == []
        assert os.listdir(home) == []
    assert tuple(found) == ROWS
    assert not [row for row, reading in found.items() if math.isnan(reading.value)]
    lost = found["lost"]
    assert (lost.value, lost.parts["run twice"]) == (0, "0"), lost.parts
    assert int(lost.parts["commands"]) > 2 * size.sandboxes
    assert (lost.parts["in flight"], lost.parts["of them when the gateway is killed"]) == ("150", "140")
    assert len(found["create"].curves["create"]) == len(found["delete"].curves["delete"]) == size.sandboxes
    assert "POST pods 1.00" in found["fill"].parts["requests a pod"]
    assert found["requests"].value >= found["requests_create"].value > 0
    assert float(found["controller_cpu"].parts["in all"].removesuffix(" s")) > 0
    assert found["gateway_cpu"].value > 0
