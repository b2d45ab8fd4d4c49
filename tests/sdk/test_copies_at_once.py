"""Copies of directories have eight files under way, so that none waits for another's round trip."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sandlot import AsyncClient, AsyncSandbox

from tests.sdk.service.faults import Fault
from tests.sdk.service.server import Service
from tests.waiting import until


@pytest.mark.parametrize("method", ["PUT", "GET"])
async def test_eight_files_are_under_way(service: Service, tmp_path: Path, method: str) -> None:
    (tmp_path / "tree").mkdir()
    for number in range(20):
        (tmp_path / "tree" / str(number)).write_text("text")
    async with (
        AsyncClient(url=service.url, api_key=service.api_key) as client,
        await AsyncSandbox.create(client=client) as box,
    ):
        if method == "GET":
            await box.files.upload(tmp_path / "tree", "/tmp/tree")
        service.faults.extend([Fault("/files", hold=True)] * 20)
        copy = (
            box.files.upload(tmp_path / "tree", "/tmp/tree")
            if method == "PUT"
            else box.files.download("/tmp/tree", tmp_path / "back")
        )
        copying = asyncio.create_task(copy)
        await until(lambda: len(service.calls("/files", method)) == 8)  # none of which is answered
        copying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await copying
        assert len(service.calls("/files", method)) == 8
        service.faults.clear()
