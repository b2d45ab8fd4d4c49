"""Finds what a private stack leaves on the machine: processes, mounts, cgroups, files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
GRACE = 10.0  # seconds for the kernel to tear down the last namespaces


class Leftovers:
    """Records the names of a stack's instances while it runs, to recognise their traces afterwards.

    `outside` are paths that user code writes in its sandbox and that must not appear on the machine itself.
    """

    def __init__(self, *, state_dir: Path, outside: tuple[Path, ...] = ()) -> None:
        self._state_dir = state_dir
        self._instances: set[str] = set()
        self._outside = [path for path in outside if not path.exists()]

    async def watch(self, *, every: float = 0.2) -> None:
        """Record instances every `every` seconds until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(every)

    def look(self) -> None:
        """Record the present instances."""
        try:
            names = os.listdir(self._state_dir / "instances")
        except OSError:
            return
        self._instances.update(names)

    async def left(self) -> list[str]:
        """Return a line for each leftover after the stack has ended; wait up to GRACE seconds."""
        for _ in range(int(GRACE / 0.1)):
            found = list(self._found())
            if not found:
                return []
            await asyncio.sleep(0.1)
        return list(self._found())

    def _found(self) -> Iterator[str]:
        yield from self._processes()
        marks = (str(self._state_dir).encode(),)
        for line in _read(Path("/proc/self/mountinfo")).splitlines():
            if any(mark in line for mark in marks):
                yield f"mount {line.decode(errors='replace').split()[4]}"
        for path, names, _ in os.walk(CGROUPS):
            yield from (f"cgroup {path}/{name}" for name in names if name in self._instances)
        try:
            yield from (f"state of instance {name}" for name in os.listdir(self._state_dir / "instances"))
        except OSError:
            pass
        yield from (f"file {path} on the machine" for path in self._outside if path.exists())

    def _processes(self) -> Iterator[str]:
        """Yield processes with the state directory in their command line or mounts, or an instance in their cgroup.

        The mounts identify user code, too: its root is an overlay whose upper layer is in the state directory.
        """
        mark = str(self._state_dir).encode()
        names = [name.encode() for name in self._instances]
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) == os.getpid():
                continue
            process = Path("/proc") / entry
            if (
                mark in _read(process / "cmdline")
                or mark in _read(process / "mountinfo")
                or any(name in cgroup for cgroup in [_read(process / "cgroup")] for name in names)
            ):
                command = _read(process / "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
                yield f"process {entry} ({command or 'no command line'})"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
