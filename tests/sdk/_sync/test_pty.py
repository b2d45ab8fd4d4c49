# This file is auto-generated from tests/sdk/_async/test_pty.py by tools/async_to_sync.py: do not change it.
"""Terminals, which only the real stack has."""

from __future__ import annotations

import pytest
from sandlot import Client, Process, Sandbox, Stdout

from tests.stack import Stack

pytestmark = pytest.mark.root


def read_until(process: Process, text: str) -> str:
    """Output up to and with `text`."""
    seen = ""
    for event in process:
        if isinstance(event, Stdout):
            seen += event.text
            if text in seen:
                return seen
    raise AssertionError(f"ended without {text!r}: {seen!r}")


def test_a_terminal_has_a_size_that_can_change(stack: Stack) -> None:
    with (
        Client(url=stack.url, api_key=stack.api_key) as client,
        Sandbox.create(client=client) as box,
        box.start(["sh", "-i"], pty=(90, 30), env={"PS1": "ready> "}) as process,
    ):
        read_until(process, "ready> ")
        process.write("stty size\n")
        read_until(process, "30 90")
        process.resize(cols=120, rows=40)
        process.write("stty size\n")
        read_until(process, "40 120")
        process.write("test -t 0 && echo a-$((6 * 7))-tty\n")
        read_until(process, "a-42-tty")
        process.write("exit 6\n")
        assert (process.wait()).exit_code == 6
