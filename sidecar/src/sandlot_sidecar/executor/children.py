"""Reaps the executor's children: a known one keeps its exit status for its owner, an orphaned op has none."""

from __future__ import annotations

import os
import signal

_known: dict[int, Process] = {}  # by pid, until each is reaped


class Process:
    """A child of this process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.status = 0  # wait status
        _known[pid] = self

    @property
    def reaped(self) -> bool:
        """Whether it has ended and been waited for: its pid may be another process's."""
        return _known.get(self.pid) is not self

    def kill(self) -> None:
        """Send SIGKILL."""
        if self.reaped:
            return
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:  # in a forked job: the executor has reaped it since
            return

    def reap(self) -> None:
        """Wait for its end, unless that is done."""
        if self.reaped:
            return
        try:
            _, self.status = os.waitpid(self.pid, 0)
        except ChildProcessError:
            pass
        del _known[self.pid]

    def reap_with_orphans(self) -> None:
        """Wait for its end, and reap all children that end meanwhile."""
        try:
            while not self.reaped and (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)) is not None:
                _reap(found.si_pid)
        except ChildProcessError:
            self.reap()


def reap_ended() -> None:
    """Reap all children that have ended, among them orphaned ops: this process is their subreaper."""
    try:
        while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            _reap(found.si_pid)
    except ChildProcessError:
        return


def _reap(pid: int) -> None:
    known = _known.get(pid)
    if known is None:
        os.waitpid(pid, 0)
    else:
        known.reap()
