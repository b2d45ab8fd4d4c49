"""The simulation of many pods in small: its rows are there and within their bounds, and nothing of it stays behind."""

from __future__ import annotations

import os
import socket
import tempfile

import pytest
from sandlot_contract.ports import SIDECAR_PORT

from loadtests.bench_cluster import SPEC
from loadtests.bounds import read_bounds
from loadtests.cluster.simulated import ROWS, Size, simulated
from loadtests.cluster.simulated_cluster import why_not
from loadtests.processes import with_mark
from tests.ports import address

pytestmark = [
    pytest.mark.programs,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(why_not()), reason=str(why_not())),
]


async def test_every_row_is_told_and_nothing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    size = Size(pods=60, nodes=6, pools=3, claimed=30)
    with (
        tempfile.TemporaryDirectory(prefix="sandlot-") as home,
        socket.create_server((address(65535), SIDECAR_PORT)),  # another test's sidecar, as it might be
    ):
        monkeypatch.setattr(tempfile, "tempdir", home)
        found = await simulated(size)
        assert with_mark(home) == []
        assert os.listdir(home) == []
    assert tuple(found) == ROWS
    bounds = read_bounds(SPEC)
    assert set(ROWS) <= bounds.keys()
    assert found["writes_simulated"].parts["sandboxes"] == "30"
    # What the API server is asked for does not depend on how busy the machine is.
    assert bounds["writes_simulated"].held(found["writes_simulated"].value)
    assert found["noticed"].parts["pods"] == "30"
    assert all(seconds > 0 for seconds in found["noticed"].curves["filled"])
    assert len(found["noticed"].curves["filled"]) == size.pods
