"""The end of all members of a control group, also of a crowd that forks meanwhile."""

from __future__ import annotations

import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .group import Group

CROWD = 16  # members that are killed by their process groups first


def kill_members(
    group: Group, *, spare: int, seconds: float = 10.0, lost: Callable[[], None] | None = None
) -> int:
    """SIGKILL every member but `spare`, until none is left; how many were killed.

    No new one can be born meanwhile, so a fork bomb cannot win. Where the kernel lets some be born all the
    same (gVisor), `lost` is called once a second was not enough.
    """
    if not group.loose:
        lost = None
    if lost is not None:
        seconds = 1.0
    before = (group.read("pids_limit") or "").strip()
    stopped = bool(before) and group.write("pids_limit", "0")
    killed: set[int] = set()
    deadline = time.monotonic() + seconds
    pause = 0.0005
    crowds = 3  # looks at what is left of a crowd before its members are killed one by one
    try:
        while True:
            victims = [pid for pid in group.members() if pid != spare]
            if not victims:
                return len(killed)
            if len(victims) > CROWD and crowds:
                crowds -= 1
                deadline = time.monotonic() + seconds
                _kill_process_groups(victims, spare=spare)
                killed.update(victims)
                time.sleep(pause)
                continue
            for pid in victims:
                if time.monotonic() > deadline:
                    break
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                killed.add(pid)
            if time.monotonic() > deadline:
                if lost is not None and not killed.issuperset(victims):
                    lost()
                return len(killed)
            time.sleep(pause)
            pause = min(pause * 2, 0.02)
    finally:
        if stopped and before != "0":  # else somebody else is killing too, and gives the limit back
            group.write("pids_limit", before)


def _kill_process_groups(victims: list[int], *, spare: int) -> None:
    """SIGKILL the process groups of the first and the last: a bomb is mostly one.

    Under gVisor each system call of ours waits for a turn among hundreds of processes that fork, and to kill them one
    by one takes seconds in which they take memory.
    """
    # A child that has not begun a session of its own yet is in its runner's.
    done = {os.getpgid(0), os.getpgid(spare) if spare else 0}
    for pid in (victims[0], victims[-1]):
        try:
            group = os.getpgid(pid)
            if group > 0 and group not in done:
                done.add(group)
                os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            continue
