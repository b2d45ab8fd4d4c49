"""A next generation that fails, is lost or is dropped goes at once, and takes nothing from the current one."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from tests.executor.conftest import Make, needs_root
from tests.executor.driver import Command, Driver
from tests.executor.preparing import PROBE, ask, prepare
from tests.executor.processes import processes_below
from tests.executor.test_ahead import descriptors, inits, prepared_init, runners
from tests.waiting import wait_until

pytestmark = [pytest.mark.root, needs_root]


def used(box: Driver) -> tuple[int, int, int]:
    return len(inits(box)), len(runners(box)), descriptors(box)


def test_one_whose_first_command_fails_is_dropped_at_once(box: Driver) -> None:
    before = used(box)
    ask(box, probe={**PROBE, "shell": "sleep 996; exit 3"})
    wait_until(lambda: b"sleep\x00996" in commands(box))
    assert used(box) > before
    for pid in processes_below(box.process.pid):
        if command_line(pid) == b"sleep\x00996\x00":
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: used(box) == before)
    prepare(box)  # not without another request


@pytest.mark.parametrize("keep", [False, True])
def test_a_lost_one_is_dropped_at_once(box: Driver, keep: bool) -> None:
    before = used(box)
    prepare(box, keep=keep)
    os.kill(runners(box)[0] if keep else prepared_init(box), signal.SIGKILL)
    wait_until(lambda: used(box) == before)


# A runner of the owner's is killed by the kernel for its memory and not yet reaped when a preparation is dropped.
KILLED_BEFORE = """
import os, signal
from sandlot_sidecar.executor import ahead
drop = ahead.Ahead.drop
def late(self):
    if self._prepared is not None:
        for child in self._runners.children.values():
            os.kill(child.pid, signal.SIGKILL)
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
            child.memory_facts = lambda limiting: {"oom": True}
    drop(self)
ahead.Ahead.drop = late
"""


def test_the_owner_s_exit_statuses_are_kept(make: Make) -> None:
    box = make(first=KILLED_BEFORE)
    answer, fd = box.ask_fd("runner")
    ask(box, probe={**PROBE, "shell": "sleep 997"})
    wait_until(lambda: b"sleep\x00997" in commands(box))
    ask(box, memory=64 << 20)
    assert box.ask("lost", runner=answer["runner"])["facts"] == {"oom": True}
    os.close(fd)


def commands(box: Driver) -> bytes:
    """The command lines of all its processes."""
    return b"".join(command_line(pid) for pid in processes_below(box.process.pid))


def command_line(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def test_a_command_of_the_owner_goes_on_beside_a_drop(box: Driver) -> None:
    command = box.runner().start("sleep 0.5; exit 7")
    assert isinstance(command, Command)
    ask(box, probe={**PROBE, "shell": "sleep 997"})
    wait_until(lambda: len(inits(box)) == 2)
    ask(box, memory=64 << 20)
    assert command.wait()["exit_code"] == 7
