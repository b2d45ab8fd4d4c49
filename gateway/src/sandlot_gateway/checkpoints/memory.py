"""Reserves this machine's memory for copies of sandboxes' files, of which several may be written at once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandlot_gateway.checkpoints.transfer import Fetched, Refused

FLOOR = 512 << 20  # bytes that stay available
_SHARE = 2  # of what is available, copies may take one part of so many
_PAGE = 4096
_INODE = 1024  # bytes of kernel memory
_ROOM = 64 << 20  # bytes for what is written while it is copied


def room_of(measured: Fetched) -> int:
    """Return the bytes of memory that a copy may take."""
    return measured.bytes + measured.entries * (_PAGE + _INODE) + _ROOM


def available(root: Path = Path("/")) -> int:
    """Return the bytes of memory that this process and its children can still get: the machine's, or their cgroups'."""
    left = [_of_machine(root)]
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            left += _of_cgroups(root / "sys/fs/cgroup", line)
    return max(0, min(left))


class Memory:
    """The bytes that copies being written may take, together."""

    def __init__(self, *, root: Path = Path("/")) -> None:
        """`root`: where /proc and /sys are."""
        self._root = root
        self._reserved = 0
        self._lock = threading.Lock()

    @contextmanager
    def reserved(self, size: int) -> Iterator[None]:
        """Reserve `size` bytes for the block, in which they are taken. Raises Refused."""
        with self._lock:
            # What another copy has taken so far counts twice: as taken, and as reserved.
            found = available(self._root)
            if size > min(found // _SHARE, found - FLOOR) - self._reserved:
                raise Refused(f"a copy of {size} bytes would take too much of this machine's memory")
            self._reserved += size
        try:
            yield
        finally:
            with self._lock:
                self._reserved -= size


def _of_machine(root: Path) -> int:
    with contextlib.suppress(OSError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return 0


def _of_cgroups(top: Path, line: str) -> Iterator[int]:
    """Yield what a process's cgroup and those above it leave, by a line of its `/proc/PID/cgroup`."""
    _, controllers, path = line.split(":", 2)
    if not controllers:
        limit, usage, cache = "memory.max", "memory.current", "inactive_file"
        top = top if not (top / "unified").is_dir() else top / "unified"
    elif "memory" in controllers.split(","):
        limit, usage, cache = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
        top = top / "memory"
    else:
        return
    place = top / path.lstrip("/")
    for directory in (place, *place.parents):
        if directory.is_relative_to(top):
            with contextlib.suppress(OSError, ValueError):  # not there in a container, or `max`
                freed = _value(directory / "memory.stat", cache)
                most, used = (int((directory / name).read_text()) for name in (limit, usage))
                yield most - used + freed


def _value(path: Path, name: str) -> int:
    for line in path.read_text().splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0
