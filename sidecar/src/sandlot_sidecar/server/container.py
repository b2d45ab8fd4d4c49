"""Whether the container of a pod ran out of memory: what its control group counts, read through open files."""

from __future__ import annotations

import os


class ContainerMemory:
    """`counters`: from the executor, of the container and, if any, of those in it that are not its own."""

    def __init__(self, counters: list[int]) -> None:
        self._counters = counters
        self._before = self._kills()

    def exhausted(self) -> bool:
        """Whether the kernel has killed something of the container's own, its first process, say; no op counts."""
        return self._kills() > self._before

    def close(self) -> None:
        """Close the files."""
        for fd in self._counters:
            os.close(fd)
        self._counters = []

    def _kills(self) -> int:
        try:
            counts = [_oom_kills(os.pread(fd, 4096, 0)) for fd in self._counters]
        except OSError:  # the group was taken away
            return 0
        return counts[0] - sum(counts[1:]) if counts else 0


def _oom_kills(text: bytes) -> int:
    for line in text.splitlines():
        name, _, count = line.partition(b" ")
        if name == b"oom_kill":
            return int(count)
    return 0
