"""The measurement of cluster DNS in small: each way has its rows, and the records of sandboxes cost what they cost."""

from __future__ import annotations

import os
import tempfile

import pytest

from loadtests.bounds import read_bounds
from loadtests.cluster.dns_churn import PROGRAMS, Size, dns_churn
from loadtests.cluster.simulated_cluster import why_not
from loadtests.dns_churn import SPEC, group
from loadtests.processes import with_mark

pytestmark = [
    pytest.mark.programs,
    pytest.mark.slow,
    pytest.mark.timeout(480),
    pytest.mark.skipif(bool(why_not(*PROGRAMS)), reason=str(why_not(*PROGRAMS))),
]


async def test_records_of_sandboxes_cost_writes_and_come_late(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = group(Size()).rows
    assert tuple(read_bounds(SPEC)) == rows
    with tempfile.TemporaryDirectory(prefix="sandlot-") as home:
        monkeypatch.setattr(tempfile, "tempdir", home)
        found = await dns_churn(Size(pods=150, changes=20, seconds=2.0))
        assert with_mark(home) == []
        assert os.listdir(home) == []
    assert tuple(found) == rows
    for way in ("default", "corefile", "ours"):
        curves = found[f"lag_{way}"].curves
        assert len(curves["another Service's, there"]) == len(curves["another Service's, gone"]) == 2
        assert ("a sandbox's record, there" in curves) is (way != "ours")
        what = "another Service's, there" if way == "ours" else "a sandbox's record, there"
        lag = found[f"lag_{way}"]
        assert lag.value == max(curves[what])
        assert (lag.parts["probes"], lag.parts[f"{what}, longest"]) == ("2", f"{lag.value:.2f} s")
    assert found["writes_default"].value > found["writes_ours"].value
