"""shell: driven through a real terminal, as a person would."""

from __future__ import annotations

from pathlib import Path

import pytest
from sandlot import Client, Sandbox

from tests.cli.conftest import environment
from tests.cli.terminal import Terminal
from tests.stack import Stack

pytestmark = pytest.mark.root


def test_a_session(stack: Stack, tmp_path: Path) -> None:
    env = environment(stack.url, stack.api_key, tmp_path)
    with Client(url=stack.url, api_key=stack.api_key) as client, Sandbox.create(client=client) as box:
        terminal = Terminal(["shell", box.id, "sh", "-i"], env)
        terminal.type("echo one-$((6 * 7))\n")
        terminal.read_until("one-42")
        terminal.resize(cols=111, rows=33)
        terminal.type("while [ \"$(stty size)\" != '33 111' ]; do sleep 0.05; done; echo size-$((1 + 1))\n")
        terminal.read_until("size-2")
        # The word comes from the command itself: a ^C between a shell's word and its command would find neither.
        terminal.type("sh -c 'echo go-$((1 + 1)); exec sleep 60'\n")
        terminal.read_until("go-2")
        terminal.type("\x03")  # Ctrl-C goes to the command, not to the shell's own client
        terminal.read_until("# ")  # a terminal drops what is typed right after it
        terminal.type("echo alive-$((2 + 2))\n")
        terminal.read_until("alive-4")
        terminal.type("exit 5\n")
        assert terminal.code() == 5


def test_a_new_sandbox_is_deleted_afterwards(stack: Stack, tmp_path: Path) -> None:
    terminal = Terminal(["shell"], environment(stack.url, stack.api_key, tmp_path))
    terminal.type("echo host-$(hostname | wc -l)\n")
    terminal.read_until("host-1")
    terminal.type("exit\n")
    assert terminal.code() == 0
    with Client(url=stack.url, api_key=stack.api_key) as client:
        assert Sandbox.list(client=client) == []
