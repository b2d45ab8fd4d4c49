"""Detects that a pod's container ran out of memory, from the counters of its cgroup."""

from __future__ import annotations

import os


class ContainerMemory:
    """Reads OOM kills. `counters`: open files of the container's cgroup, then of cgroups inside it to leave out."""

    def __init__(self, counters: list[int]) -> None:
        self._counters = counters
        self._before = self._kills()

    def exhausted(self) -> bool:
        """Return whether the OOM killer hit a process of the container itself, such as its first; ops do not count."""
        return self._kills() > self._before

    def close(self) -> None:
        """Close the files."""
        for fd in self._counters:
            os.close(fd)
        self._counters = []

    def _kills(self) -> int:
        try:
            counts = [_oom_kills(os.pread(fd, 4096, 0)) for fd in self._counters]
        except OSError:  # the cgroup was removed
            return 0
        return counts[0] - sum(counts[1:]) if counts else 0


def _oom_kills(text: bytes) -> int:
    for line in text.splitlines():
        name, _, count = line.partition(b" ")
        if name == b"oom_kill":
            return int(count)
    return 0
