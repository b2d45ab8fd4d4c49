"""A request's files are written a few at a time, and none begins after a failure."""

from __future__ import annotations

import asyncio

import pytest
from sandlot_gateway.fusion.sandbox import Lost
from sandlot_gateway.fusion.working import write_all


async def test_few_files_are_written_at_a_time() -> None:
    begun: list[str] = []
    enough = asyncio.Event()
    gate = asyncio.Event()

    async def write(path: str, _content: bytes) -> None:
        begun.append(path)
        if len(begun) == 8:
            enough.set()
        await gate.wait()
        raise Lost("the sandbox has ended")

    writing = asyncio.create_task(write_all(write, {str(number): b"" for number in range(100)}))
    await enough.wait()
    gate.set()
    with pytest.raises(Lost):
        await writing
    assert len(begun) == 8
