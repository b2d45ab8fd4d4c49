"""The time of a build bounds its wait for a sandbox and the files of a COPY, against a server that answers at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from sandlot import AsyncClient, BuildFailed, WaitTimeout
from sandlot._async import build as build_module
from sandlot._async import replay
from sandlot._tasks_async import now
from sandlot.dockerfile import build

from tests.sdk.service.server import Service


async def test_a_build_waits_for_its_sandbox_as_long_as_it_may_take(service: Service, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM python:3.12\nRUN true\n")
    service.pending_reads = 1000
    async with AsyncClient(url=service.url, api_key=service.api_key) as client:
        with pytest.raises(WaitTimeout):
            await build(tmp_path, timeout=5.0, cache=False, client=client)
    assert [box["status"] for box in service.sandboxes.values()] == ["TERMINATED"]


async def test_a_copy_ends_with_the_time_of_its_build(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Dockerfile").write_text("FROM python:3.12\nCOPY Dockerfile /copied\n")
    seconds, later = 600.0, 0.0
    for module in (build_module, replay):
        monkeypatch.setattr(module, "now", lambda: now() + later)

    def wait(text: str) -> None:
        nonlocal later
        if "COPY" in text:
            later = seconds

    async with AsyncClient(url=service.url, api_key=service.api_key) as client:
        with pytest.raises(BuildFailed) as caught:
            await build(tmp_path, timeout=seconds, cache=False, on_output=wait, client=client)
    assert (caught.value.line, caught.value.verdict) == (2, "timeout")
    assert [box["status"] for box in service.sandboxes.values()] == ["TERMINATED"]
