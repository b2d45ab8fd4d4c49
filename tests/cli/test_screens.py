"""What is drawn on a terminal: top until Ctrl-C, and bars where work is long; none of it when piped."""

from __future__ import annotations

from pathlib import Path

from sandlot import Client, Sandbox

from tests.cli.conftest import environment
from tests.cli.terminal import Terminal
from tests.sdk.conftest import Server


def test_top_ends_cleanly_at_control_c(server: Server, tmp_path: Path) -> None:
    terminal = Terminal(["top", "--interval", "0.2"], environment(server.url, server.api_key, tmp_path))
    terminal.read_until("sandboxes")
    terminal.type("\x03")
    assert terminal.code() == 0


def test_a_copy_shows_how_far_it_is(server: Server, tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as file:
        file.truncate(64 << 20)
    with Client(url=server.url, api_key=server.api_key) as client, Sandbox.create(client=client) as box:
        environ = environment(server.url, server.api_key, tmp_path)
        terminal = Terminal(["cp", str(tmp_path / "big"), f"{box.id}:/tmp/big"], environ)
        terminal.read_until("67.1 MB")
        terminal.read_until("B/s")
        terminal.read_until("64.0 MiB")
        assert terminal.code() == 0
        assert box.files.stat("/tmp/big").size == 64 << 20


def test_waiting_for_a_pool_shows_how_many_are_ready(server: Server, tmp_path: Path) -> None:
    environ = environment(server.url, server.api_key, tmp_path)
    terminal = Terminal(["pools", "set", "drawn", "--size", "2", "--memory", "128MiB", "--wait"], environ)
    terminal.read_until("warming drawn")
    terminal.read_until("2/2")
    terminal.read_until("drawn: 2 of 2 ready")
    assert terminal.code() == 0
    again = Terminal(["pools", "rm", "drawn"], environ)
    assert again.code() == 0
