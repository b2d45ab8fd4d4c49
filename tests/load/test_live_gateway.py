"""The gateway of the console's load test can be left at any time: nothing of it stays."""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from loadtests.browser.live_gateway import Size, live_gateway
from loadtests.cluster.simulated_cluster import why_not
from loadtests.processes import with_mark
from tests.waiting import wait_until

why = why_not("etcd", "kube-apiserver")
pytestmark = [pytest.mark.timeout(120), pytest.mark.skipif(bool(why), reason=str(why))]


def test_it_is_left_before_it_is_ready(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stop: Future[None] = Future()

    def enter() -> None:
        with live_gateway(Size(), stop=stop):
            raise AssertionError("ten thousand slots were there at once")

    with ThreadPoolExecutor(1) as thread:
        entered = thread.submit(enter)
        try:
            wait_until(lambda: len(with_mark(str(tmp_path))) >= 2)  # etcd and kube-apiserver
        finally:
            stop.cancel()
        with pytest.raises(RuntimeError, match="was ended before it was ready"):
            entered.result(timeout=60)
    assert with_mark(str(tmp_path)) == []
    assert os.listdir(tmp_path) == []
