"""The load test of the console can be interrupted before its gateway is ready: nothing of it stays."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import pytest

from loadtests.browser.console_rows import console
from loadtests.cluster.simulated_cluster import why_not
from loadtests.processes import with_mark
from tests.waiting import until

why = why_not("etcd", "kube-apiserver")
pytestmark = [pytest.mark.timeout(120), pytest.mark.skipif(bool(why), reason=str(why))]


async def test_it_is_left_before_it_is_ready(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    measuring = asyncio.create_task(console())
    try:
        await until(lambda: len(with_mark(str(tmp_path))) >= 2)  # etcd and kube-apiserver
    finally:
        measuring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await measuring
    assert with_mark(str(tmp_path)) == []
    assert os.listdir(tmp_path) == []
