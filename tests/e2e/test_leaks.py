"""The look at what a test left behind sees control groups and processes, and not what another stack or the session has."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot import Client, Pools

from tests.leaks import no_leaks
from tests.stack import Stack
from tests.waiting import wait_until_empty

GROUPS = Path("/sys/fs/cgroup/memory/sandlot")


def test_another_stack_s_sandbox_that_nobody_owns_is_nothing_left(stack: Stack, client: Client) -> None:
    with no_leaks(marker="of no process", grace=5.0, descriptors=False):
        pools = Pools(client=client)
        pools.set("other", size=1, image="host")
        pools.wait_warm("other", timeout=60)
        wait_until_empty(lambda: [path for path in group_of(stack).rglob("cgroup.procs") if path.read_text()])


def group_of(stack: Stack) -> Path:
    (instance,) = (stack.state_dir / "instances").iterdir()
    return GROUPS / instance.name


def test_a_control_group_without_a_sidecar_is_left() -> None:
    with (
        pytest.raises(AssertionError, match=r"left behind for 0\.1 s: \{'cgroups: .*/i-00000000000000f0'\}"),
        no_leaks(marker="of no process", grace=0.1),  # the stack of the test before may start some meanwhile
    ):
        (GROUPS / "i-00000000000000f0").mkdir(parents=True)
    (GROUPS / "i-00000000000000f0").rmdir()


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that the test starts; they end with it."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def test_a_process_that_is_left_is_named(started: list[subprocess.Popen[bytes]]) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with (
        pytest.raises(
            AssertionError, match=r"children: \d+ \(state \w, started [\d:]+, \d+ s ago\) .*time\.sleep\(60\)"
        ),
        no_leaks(marker="of no process", grace=0.1, descriptors=False),
    ):
        started.append(subprocess.Popen(command))


def dead() -> subprocess.Popen[bytes]:
    """A process that has ended and that nobody has waited for."""
    process = subprocess.Popen(["sleep", "60"])
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    return process


def test_a_zombie_is_left_and_named(started: list[subprocess.Popen[bytes]]) -> None:
    with (
        pytest.raises(AssertionError, match=r"children: \d+ \(state Z, .*\) sleep"),
        no_leaks(marker="of no process", grace=0.1, descriptors=False),
    ):
        started.append(dead())
