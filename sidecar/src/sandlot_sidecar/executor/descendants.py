"""Finds, signals and kills an op's processes: by its runner's control group, else by a sweep of /proc."""

from __future__ import annotations

import os
import signal

from .group_kill import kill_members

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .group import Group
    from .op import Op


class Descendants:
    """The processes of a runner's last op, which may outlive the op's own process."""

    def __init__(self, group: Group | None, *, init: int) -> None:
        """`init`: the pid of the sandbox's PID 1."""
        self._group = group
        self._init = init
        self.init_killed = False

    def signal(self, number: int, last: Op | None) -> int:
        """Send a signal to all of them; return how many received it."""
        if last is None:
            return 0
        if not self._group:
            return last.sweep.signal(number)
        own = os.getpid()
        return signal_each([pid for pid in self._group.members() if pid != own], number)

    def kill(self, last: Op | None) -> int:
        """SIGKILL them until none is left; return how many were killed."""
        if self._group:
            return kill_members(self._group, exclude=os.getpid(), on_timeout=self._end_init)
        return last.sweep.kill() if last is not None else 0

    def _end_init(self) -> None:
        """Kill the init: without it, no process can fork in its PID namespace."""
        self.init_killed = True
        try:
            os.kill(self._init, signal.SIGKILL)
        except ProcessLookupError:
            return

    def leftover(self, last: Op | None, *, running: bool) -> int:
        """Return how many there are besides the op's own process, if that is `running`."""
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
    """Send a signal to processes; return how many received it."""
    count = 0
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue
        count += 1
    return count
