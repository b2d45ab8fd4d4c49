"""Runs the command line as a user does: as a process of its own, against a real stack."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sandlot import Client, Sandbox

from tests.complaints import WARNINGS_SHOWN, assert_no_complaints
from tests.sdk.conftest import Server, service, stack
from tests.waiting import SECONDS

__all__ = ["service", "stack"]

Run = Callable[..., subprocess.CompletedProcess[str]]


def environment(url: str, api_key: str, home: Path) -> dict[str, str]:
    """This process's environment, with the server named and nothing else of Sandlot's."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SANDLOT_")}
    return {**kept, "SANDLOT_URL": url, "SANDLOT_API_KEY": api_key, "SANDLOT_HOME": str(home)}


def command_line(url: str, api_key: str, home: Path) -> Run:
    """`command_line(...)("ps", "--json")` runs `sandlot ps --json` to its end, with this server named."""

    def run(*arguments: str, stdin: str = "", **extra: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "sandlot", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
            env={**environment(url, api_key, home), **WARNINGS_SHOWN, **extra},
        )
        assert_no_complaints(done.stderr)
        return done

    return run


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Server:
    """The real stack, or without root the small server: the SDK's tests compare both."""
    found = request.getfixturevalue("stack" if os.geteuid() == 0 else "service")
    return Server(url=found.url, api_key=found.api_key)


@pytest.fixture
def cli(server: Server, tmp_path: Path) -> Run:
    return command_line(server.url, server.api_key, tmp_path / "home")


@pytest.fixture
def lone_cli(tmp_path: Path) -> Run:
    """For what needs no server: none answers at the URL that it knows."""
    return command_line("http://127.0.0.1:1", "a-key", tmp_path / "home")


@pytest.fixture
def box(server: Server) -> Iterator[Sandbox]:
    with Client(url=server.url, api_key=server.api_key) as client, Sandbox.create(client=client) as box:
        yield box
