"""Terminals, which only the real stack has."""

from __future__ import annotations

import pytest
from sandlot import AsyncClient, AsyncProcess, AsyncSandbox, Stdout

from tests.stack import Stack

pytestmark = pytest.mark.root


async def read_until(process: AsyncProcess, text: str) -> str:
    """Output up to and with `text`."""
    seen = ""
    async for event in process:
        if isinstance(event, Stdout):
            seen += event.text
            if text in seen:
                return seen
    raise AssertionError(f"ended without {text!r}: {seen!r}")


async def test_a_terminal_has_a_size_that_can_change(stack: Stack) -> None:
    async with (
        AsyncClient(url=stack.url, api_key=stack.api_key) as client,
        await AsyncSandbox.create(client=client) as box,
        await box.start(["sh", "-i"], pty=(90, 30), env={"PS1": "ready> "}) as process,
    ):
        await read_until(process, "ready> ")
        await process.write("stty size\n")
        await read_until(process, "30 90")
        await process.resize(cols=120, rows=40)
        await process.write("stty size\n")
        await read_until(process, "40 120")
        await process.write("test -t 0 && echo a-$((6 * 7))-tty\n")
        await read_until(process, "a-42-tty")
        await process.write("exit 6\n")
        assert (await process.wait()).exit_code == 6
