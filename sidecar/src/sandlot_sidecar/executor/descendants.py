"""All that an op has started: found by its runner's control group, without one by a sweep through /proc."""

from __future__ import annotations

import os
import signal

from .group_kill import kill_members

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .group import Group
    from .op import Op


class Descendants:
    """Those of a runner's last op, which may have ended before them."""

    def __init__(self, group: Group | None, *, init: int) -> None:
        """`init`: the pid of the sandbox's PID 1."""
        self._group = group
        self._init = init

    def signal(self, number: int, last: Op | None) -> int:
        """Send all of them a signal; how many there were."""
        if last is None:
            return 0
        if not self._group:
            return last.sweep.signal(number)
        own = os.getpid()
        return signal_each([pid for pid in self._group.members() if pid != own], number)

    def kill(self, last: Op | None) -> int:
        """SIGKILL until none is left; how many died."""
        if self._group:
            return kill_members(self._group, spare=os.getpid(), lost=self._end_init)
        return last.sweep.kill() if last is not None else 0

    def _end_init(self) -> None:
        """Nobody is born in a namespace of processes whose first one has died."""
        try:
            os.kill(self._init, signal.SIGKILL)
        except ProcessLookupError:
            return

    def leftover(self, last: Op | None, *, running: bool) -> int:
        """How many there are besides the op's own process, which may be `running`."""
        if self._group:
            if self._group.number("pids") == 1:
                return 0
            own = os.getpid()
            main = last.pid if running and last is not None else own
            return sum(pid not in (own, main) for pid in self._group.members())
        if last is None:
            return 0
        members = last.sweep.members()
        return len(members) - (1 if running and members else 0)


def signal_each(pids: list[int], number: int) -> int:
    """Send processes a signal; how many of them got it."""
    count = 0
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue
        count += 1
    return count
