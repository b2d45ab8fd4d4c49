"""up: one line when ready, found by other commands on this machine, and nothing left after SIGTERM or Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.complaints import WARNINGS_SHOWN, assert_no_complaints
from tests.sdk.conftest import assert_gone
from tests.waiting import SECONDS

pytestmark = [
    pytest.mark.root,
    pytest.mark.timeout(300),  # a dozen processes, one after the other
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: starts real sandboxes"),
]


@pytest.fixture
def home() -> Iterator[Path]:
    # Not pytest's own directory: its long path leaves no room for the names of Unix sockets (108 bytes).
    with tempfile.TemporaryDirectory(prefix="sandlot-") as directory:
        yield Path(directory) / "home"


SANDLOT = [sys.executable, "-m", "sandlot"]


@pytest.fixture
def env(home: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SANDLOT_")}
    return {**kept, "SANDLOT_HOME": str(home), **WARNINGS_SHOWN}


@contextmanager
def up(home: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A stack that is ready; what a failed test leaves of it is taken away, and all has to be gone."""
    begin = [*SANDLOT, "up", "--port", "0", "--pool", "warm=1"]
    stack = subprocess.Popen(begin, stdout=subprocess.PIPE, text=True, env=env)
    try:
        assert stack.stdout is not None
        assert stack.stdout.readline().startswith("sandlot: ready at http://127.0.0.1:")
        yield stack
    finally:
        stack.kill()
        stack.communicate()
        subprocess.run([*SANDLOT, "local", "clean", "--force"], env=env, check=False, timeout=SECONDS)
    assert_gone(home)


@pytest.mark.longest
def test_up(home: Path, env: dict[str, str]) -> None:
    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*SANDLOT, *arguments], capture_output=True, text=True, env=env, check=False, timeout=SECONDS
        )
        assert_no_complaints(done.stderr)
        return done

    with up(home, env) as stack:
        assert command("local", "status").stdout.startswith("running at http://127.0.0.1:")
        kept = command("run", "--keep", "host", "--", "echo found")
        assert kept.stdout == "found\n"
        second = command("up", "--port", "0")
        assert second.returncode == 4
        assert "running already" in second.stderr
        assert "warm" in command("pools", "ls").stdout
        assert "warm" in command("top", "--once").stdout
        assert command("top", "--json").stdout.startswith("{")
        end(stack, signal.SIGTERM)
        assert command("local", "status").returncode == 3


def end(stack: subprocess.Popen[str], number: signal.Signals) -> None:
    stack.send_signal(number)
    assert stack.wait(SECONDS) == 0
    assert stack.stdout is not None
    assert stack.stdout.read() == ""


def test_control_c_ends_it_likewise(home: Path, env: dict[str, str]) -> None:
    with up(home, env) as stack:
        end(stack, signal.SIGINT)
        status = subprocess.run([*SANDLOT, "local", "status"], env=env, capture_output=True, check=False)
        assert status.returncode == 3
