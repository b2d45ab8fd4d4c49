"""Stops processes for a while (SIGSTOP), and goes on when none of their threads runs any more."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.waiting import wait_until

_NOT_RUNNING = frozenset("TtZX")  # stopped, stopped by a tracer, or ended: proc(5)


def stop(*pids: int) -> None:
    """A thread that runs goes on until the kernel has told it, so `kill` returns while they may still answer."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    for pid in pids:
        wait_until(lambda pid=pid: _states(pid) <= _NOT_RUNNING, pause=0.001, what=f"{pid} is stopped")


def resume(*pids: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):  # it may have ended meanwhile
            os.kill(pid, signal.SIGCONT)


@contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """For the block they run no instruction."""
    try:
        stop(*pids)
        yield
        assert all(_states(pid) <= _NOT_RUNNING for pid in pids), "something else resumed a stopped process"
    finally:
        resume(*pids)


def _states(pid: int) -> set[str]:
    states: set[str] = set()
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):  # that thread has ended
            states.add(stat.read_text(errors="replace").rpartition(")")[2].split()[0])
    return states
