"""Sees what a test left on the machine: processes, mounts, cgroups, descriptors."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.plugins.worker import CGROUPS, hierarchies
from tests.waiting import wait_until_empty

# Children that a fixture of the session ends. A test may restart one between the two looks of another session fixture.
session_servers: set[int] = set()

# Of the directories below /tmp in which the tests of gVisor run their containers.
GVISOR_PREFIX = "sandlot-gvisor-"

# On the command lines of our processes: a package's name, or that of the process that deletes an adapter's sandboxes.
OURS = (b"sandlot_", b"sandlot.integrations._orphans")


@dataclass(frozen=True)
class Snapshot:
    children: frozenset[int]
    sandlot_processes: frozenset[int]
    mounts: frozenset[str]
    cgroups: frozenset[str]
    descriptors: int


def _children(pid: int) -> frozenset[int]:
    """Of all its threads. Not theirs in turn: a server of the whole session may start and end some at any time."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            found.update(int(child) for child in (task / "children").read_text().split())
    return frozenset(found - session_servers)


def _sandlot_processes() -> dict[int, bytes]:
    """The command lines of those that live."""
    found: dict[int, bytes] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z" and any(name in command for name in OURS):
            found[int(entry.name)] = command
    return found


def groups_below(base: Path) -> Iterator[tuple[str, list[str]]]:
    """Each control group with the names of those in it, which may be changed; without a kubelet's, which no test made."""
    # os.walk, unlike rglob, passes over a directory that goes while it looks.
    for parent, names, _ in os.walk(base):
        names[:] = [name for name in names if "kubepods" not in name]
        yield parent, names


def _forgotten_cgroups(processes: Iterable[bytes]) -> frozenset[str]:
    """Sandlot's cgroups whose instance has no sidecar. One that nobody owns yet has a sidecar, and nothing in its group."""
    living = b"\0".join(processes)
    found: set[str] = set()
    for base in list(hierarchies()) or [CGROUPS]:  # version 2 has one
        for parent, names in groups_below(base):
            if Path(parent).name == "sandlot":
                found.update(f"{parent}/{name}" for name in names if os.fsencode(name) not in living)
                names.clear()
    return frozenset(path for path in found if Path(path).is_dir())


def mount_table() -> list[str]:
    """Its lines, without those of other processes' tests: what gVisor holds, and networks' names (tests/cable.py)."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if not _is_of_another(_point(line))]


def _is_of_another(point: str) -> bool:
    network = re.fullmatch(r"/run/netns/sandlot-[a-z]+-(\d+)", point)
    return point.startswith(f"/tmp/{GVISOR_PREFIX}") or (
        network is not None and int(network[1]) != os.getpid()
    )


def _point(line: str) -> str:
    return line.split(" - ")[0].split()[4]


def snapshot(*, marker: str = "") -> Snapshot:
    processes = _sandlot_processes()
    return Snapshot(
        children=_children(os.getpid()),
        sandlot_processes=frozenset(pid for pid, command in processes.items() if marker.encode() in command),
        mounts=frozenset(map(_point, mount_table())),
        cgroups=_forgotten_cgroups(processes.values()),
        descriptors=len(os.listdir("/proc/self/fd")),
    )


def differences(before: Snapshot, after: Snapshot, *, descriptors: bool = True) -> set[str]:
    """What is there after and was not before, each by itself."""
    left: set[str] = set()
    for name in ("children", "sandlot_processes", "mounts", "cgroups"):
        left.update(f"{name}: {item}" for item in getattr(after, name) - getattr(before, name))
    if descriptors and after.descriptors > before.descriptors:
        left.add(f"descriptors: more than {before.descriptors}")
    return left


def _described(item: str) -> str:
    """A process with its state, age and command line; its name, if it is a zombie."""
    name, _, number = item.partition(": ")
    if name not in ("children", "sandlot_processes"):
        return item
    try:
        stat = Path(f"/proc/{number}/stat").read_text()
        command = Path(f"/proc/{number}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ")
    except OSError:
        return f"{item} (gone)"
    comm, _, fields = stat.partition("(")[2].rpartition(") ")
    state, *_ = values = fields.split()
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(values[19]) / os.sysconf("SC_CLK_TCK")
    started = time.strftime("%H:%M:%S", time.localtime(time.time() - age))
    return f"{item} (state {state}, started {started}, {age:.0f} s ago) {command.decode(errors='replace')[:500] or comm}"


@contextmanager
def no_leaks(*, marker: str = "", grace: float = 30.0, descriptors: bool = True) -> Iterator[None]:
    """Raises AssertionError when the block leaves something behind that has not gone within `grace` seconds.

    `marker`, a state directory say, limits the processes looked at to those with it on their command line.
    """
    before = snapshot(marker=marker)
    yield
    left: set[str] | None = None

    def still_there() -> set[str]:
        nonlocal left
        now = differences(before, snapshot(marker=marker), descriptors=descriptors)
        # Another stack's cgroup is without a sidecar for a moment when it is made and removed: what stays counts.
        left = now if left is None else left & now
        return {_described(item) for item in left}

    wait_until_empty(still_there, seconds=grace, pause=0.05)
