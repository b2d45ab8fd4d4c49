"""The load test of the console in small: its rows are there, those without times hold, and nothing of it stays behind."""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor

import pytest

from loadtests.bounds import read_bounds
from loadtests.browser.console_rows import ROWS, measured
from loadtests.browser.live_gateway import Size
from loadtests.cluster.simulated_cluster import why_not
from loadtests.console import SPEC
from loadtests.processes import with_mark

why = why_not("etcd", "kube-apiserver")
pytestmark = [pytest.mark.timeout(600), pytest.mark.skipif(bool(why), reason=str(why))]


def test_every_row_is_told_and_nothing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="sandlot-") as home:
        monkeypatch.setattr(tempfile, "tempdir", home)
        size = Size(sandboxes=150, spare=30, rate=4.0, callers=8)
        # The browser of the other tests keeps an event loop running in this thread.
        with ThreadPoolExecutor(1) as thread:
            found = thread.submit(measured, size, seconds=6.0, rounds=1, creates=1).result()
        assert with_mark(home) == []
        assert os.listdir(home) == []
    bounds = read_bounds(SPEC)
    assert tuple(found) == ROWS == tuple(bounds)
    for row in ("console_answer", "console_elements", "console_faults"):
        assert bounds[row].held(found[row].value), found[row]
    assert int(found["console_faults"].parts["ended"]) > 0
    assert found["console_shown"].value > 0
