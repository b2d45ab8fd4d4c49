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


def test_a_sandbox_that_is_deleted_under_a_shell(stack: Stack, tmp_path: Path) -> None:
    env = environment(stack.url, stack.api_key, tmp_path)
    with Client(url=stack.url, api_key=stack.api_key) as client, Sandbox.create(client=client) as box:
        terminal = Terminal(["shell", box.id, "sh", "-c", "echo go-$((1 + 1)); exec sleep 60"], env)
        terminal.read_until("go-2")
        box.delete()
        lines = terminal.rest()
        assert len(lines) == 1, lines
        assert lines[0].startswith("sandlot: ")
        assert terminal.code() == 125


@pytest.mark.parametrize(
    ("arguments", "word", "code"),
    [
        (["--cwd", "/no/such"], "/no/such", 126),
        (["--user", "nobody-here"], "nobody-here", 126),
    ],
)
def test_a_shell_that_cannot_start(
    stack: Stack, tmp_path: Path, arguments: list[str], word: str, code: int
) -> None:
    terminal = Terminal(["shell", *arguments], environment(stack.url, stack.api_key, tmp_path))
    lines = terminal.rest()
    assert len(lines) == 1, lines
    assert lines[0].startswith("sandlot: ")
    assert word in lines[0]
    assert terminal.code() == code


def test_a_shell_that_is_not_there(stack: Stack, tmp_path: Path) -> None:
    env = environment(stack.url, stack.api_key, tmp_path)
    with Client(url=stack.url, api_key=stack.api_key) as client, Sandbox.create(client=client) as box:
        terminal = Terminal(["shell", box.id, "/no/such", "argument"], env)
        assert len(terminal.rest()) <= 1
        assert terminal.code() == 127
