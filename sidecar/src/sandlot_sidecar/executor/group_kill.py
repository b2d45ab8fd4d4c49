"""Kills all members of a control group, including a fork bomb."""

from __future__ import annotations

import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .group import Group

CROWD = 16  # above this many members, kill their process groups first
# Signals to a process group, one after the other: under gVisor what is forked during one of them escapes it. Each call
# waits behind the others, so this must not read who is left in between.
SIGNALS = 8


def kill_members(
    group: Group, *, exclude: int, seconds: float = 10.0, on_timeout: Callable[[], None] | None = None
) -> int:
    """SIGKILL every member but `exclude` until none is left; return how many were killed.

    A process limit of 0 stops new forks meanwhile. Where the kernel lets some through (gVisor), call `on_timeout` if
    members that were not killed are left after a second.
    """
    if not group.unenforced:
        on_timeout = None
    if on_timeout is not None:
        seconds = 1.0
    before = (group.read("pids_limit") or "").strip()
    stopped = bool(before) and group.write("pids_limit", "0")
    killed: set[int] = set()
    deadline = time.monotonic() + seconds
    pause = 0.0005
    crowds = 3  # rounds of killing process groups before killing one by one
    try:
        while True:
            victims = [pid for pid in group.members() if pid != exclude]
            if not victims:
                return len(killed)
            if len(victims) > CROWD and crowds:
                crowds -= 1
                _kill_crowd(group, victims, exclude=exclude)
                # Not before: with a thousand processes the signals take longer than `seconds`.
                deadline = time.monotonic() + seconds
                killed.update(victims)
                time.sleep(pause)
                continue
            for pid in victims:
                # Few are killed whatever the time: on a busy machine it may be over before this process has its turn.
                if len(victims) > CROWD and time.monotonic() > deadline:
                    break
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                killed.add(pid)
            if time.monotonic() > deadline:
                if on_timeout is not None and not killed.issuperset(victims):
                    on_timeout()
                return len(killed)
            time.sleep(pause)
            pause = min(pause * 2, 0.02)
    finally:
        if stopped and before != "0":  # "0": another process is killing too and restores the limit
            group.write("pids_limit", before)


def signal_members(group: Group, *, seconds: float = 1.0) -> None:
    """SIGKILL every member once, for at most `seconds`, and do not wait for their end: it can take long."""
    victims = group.members()
    if len(victims) > CROWD:
        _kill_crowd(group, victims, exclude=0)
        victims = group.members()
    deadline = time.monotonic() + seconds
    for pid in victims:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        if time.monotonic() > deadline:
            return


def _kill_crowd(group: Group, victims: list[int], *, exclude: int) -> None:
    """SIGKILL the process groups of the first and the last victim: a fork bomb usually has one group.

    Under gVisor each system call waits behind hundreds of forking processes: killing one by one takes seconds, in
    which they allocate memory.
    """
    signals = SIGNALS if group.unenforced else 1
    # A child that has not called setsid yet is in its runner's process group.
    done = {os.getpgid(0), os.getpgid(exclude) if exclude else 0}
    for pid in (victims[0], victims[-1]):
        try:
            number = os.getpgid(pid)
            if number > 0 and number not in done:
                done.add(number)
                for _ in range(signals):
                    os.killpg(number, signal.SIGKILL)
        except ProcessLookupError:
            continue
