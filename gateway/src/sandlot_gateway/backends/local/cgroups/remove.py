"""Removes control groups with all their processes, without a race against forks."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from .base import write


def remove_groups(paths: Iterable[Path], *, timeout: float = 10.0) -> list[Path]:
    """Kill every process in the groups and their children, remove the groups and return what is left.

    Tries for up to `timeout` seconds, because a group stays busy for a moment after its last process. Blocks.
    """
    left = [path for path in paths if path.exists()]
    deadline = time.monotonic() + timeout
    pause = 0.001
    while True:
        for path in left:
            _kill(path)
        left = [path for path in left if not _remove(path)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(pause)
        pause = min(pause * 2, 0.05)


def _tree(path: Path) -> list[Path]:
    """Return the group and its descendants, children before parents."""
    return [Path(directory) for directory, _, _ in os.walk(path, topdown=False)]


def _remove(path: Path) -> bool:
    for directory in _tree(path):
        try:
            os.rmdir(directory)
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno in (errno.EBUSY, errno.ENOTEMPTY):
                return False
            raise
    return True


def _kill(path: Path) -> None:
    try:
        write(path / "cgroup.kill", 1)
        return
    except OSError:
        pass  # version 1, or a kernel before 5.14
    for directory in _tree(path):
        frozen = directory / "freezer.state"
        if frozen.exists():
            # A killed task dies only once thawed; thaw again below, in case the executor froze it.
            _try_write(frozen, "THAWED")
        try:
            pids = [int(word) for word in (directory / "cgroup.procs").read_text().split()]
        except OSError:
            continue
        for pid in pids:
            if pid > 0 and pid != os.getpid():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue


def _try_write(path: Path, value: str) -> None:
    try:
        write(path, value)
    except OSError:
        return
