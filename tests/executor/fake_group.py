"""A control group of plain files, as gVisor has them: it refuses nothing, counts no OOM kills, and changes by writes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sandlot_sidecar.executor.group import Group
from sandlot_sidecar.executor.group_directories import DIRECTORY

CONTROLLERS = ("memory", "pids", "cpuacct")
Process = subprocess.Popen[bytes]


def fake_parent(path: Path) -> Group:
    """The group above fake ones in a directory."""
    directory = os.open(path, DIRECTORY)
    return Group(version=1, name="", directories=dict.fromkeys(CONTROLLERS, directory))


class FakeGroup(Group):
    """Its members are the lines of a file; `on_list` is called after each listing of them."""

    def __init__(
        self, path: Path, *, pids: int = 1, limit: int = 100, on_list: Callable[[], None] = lambda: None
    ) -> None:
        path.mkdir(exist_ok=True)
        directory = os.open(path, DIRECTORY)
        super().__init__(version=1, name=path.name, directories=dict.fromkeys(CONTROLLERS, directory))
        self._path = path
        self._on_list = on_list
        for file, number in (("pids.current", pids), ("pids.max", limit), ("cpuacct.usage_sys", 0)):
            self.put(file, number)
        self.hold()

    def put(self, file: str, text: Any) -> None:
        """Change a file, as the kernel does."""
        (self._path / file).write_text(str(text))

    def hold(self, *processes: Process) -> None:
        """Change the members."""
        self.put("cgroup.procs", "".join(f"{process.pid}\n" for process in processes))

    def members(self) -> list[int]:
        found = super().members()
        self._on_list()
        return found


@contextmanager
def sleepers(count: int) -> Iterator[list[Process]]:
    """Start processes in one process group of their own, which end with the block."""
    started: list[Process] = []
    try:
        while len(started) < count:
            leader = started[0].pid if started else 0
            started.append(subprocess.Popen(["sleep", "600"], process_group=leader))
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def was_killed(process: Process) -> bool:
    """End a process; whether SIGKILL, which comes first, had been sent to it before."""
    process.terminate()
    return process.wait() == -signal.SIGKILL
