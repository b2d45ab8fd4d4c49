"""The private stack of a run that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.leaks import no_leaks
from tests.waiting import wait_until

RUN = """
import asyncio, pathlib, sys
from sandlot_grade.stack import PrivateStack

async def run() -> None:
    async with PrivateStack(parent=pathlib.Path(sys.argv[1]), idle=5.0) as stack:
        print(stack.pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(run())
"""


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sandlot-") as name, no_leaks(marker=name):
        yield Path(name)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_stack_of_a_killed_run_ends(directory: Path) -> None:
    run = subprocess.Popen([sys.executable, "-c", RUN, str(directory)], stdout=subprocess.PIPE, text=True)
    with run:
        assert run.stdout is not None
        gateway = int(run.stdout.readline())
        run.kill()
    try:
        wait_until(lambda: not is_alive(gateway))
    except AssertionError:
        os.kill(gateway, signal.SIGTERM)
        raise
