"""Receives a control group's out-of-memory notifications, and counts the checks for a kill that follow."""

from __future__ import annotations

import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .group import Group

# The kernel notifies before it kills: check for a while.
OOM_CHECKS = 40
OOM_PAUSE_MS = 5


class OomEvents:
    """OOM notifications of one group; none if it has no memory controller or no OOM killer."""

    def __init__(self, group: Group | None, poll: select.poll) -> None:
        """Register the notification descriptor with `poll`. Raises OSError."""
        self.checks = 0  # remaining checks for an OOM kill
        self._version = group.version if group else 0
        self.fd = _open(group, poll) if group and "memory" in group.directories else -1

    def on_event(self) -> None:
        """Start checking for a kill, after a notification."""
        if self._version == 1:
            try:
                os.eventfd_read(self.fd)
            except BlockingIOError:
                pass
        self.checks = OOM_CHECKS

    def count_down(self) -> None:
        """Count one check."""
        self.checks = max(0, self.checks - 1)


def _open(group: Group, poll: select.poll) -> int:
    directory = group.directories["memory"]
    if group.version == 2:
        fd = os.open("memory.events", os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
        os.pread(fd, 4096, 0)
        poll.register(fd, select.POLLPRI)
        return fd
    control = os.open("memory.oom_control", os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    try:
        events = os.open("cgroup.event_control", os.O_WRONLY | os.O_CLOEXEC, dir_fd=directory)
        try:
            os.write(events, f"{fd} {control}".encode())
        finally:
            os.close(events)
    except OSError:
        os.close(fd)
        return -1
    finally:
        os.close(control)
    poll.register(fd, select.POLLIN)
    return fd
