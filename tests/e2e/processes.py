"""Finds the processes of a stack: its sidecars' servers, their executors, the sandboxes' inits."""

from __future__ import annotations

import contextlib
from pathlib import Path

from tests.stack import Stack


def sidecars(stack: Stack) -> list[int]:
    """The sidecar servers: the eldest processes with this state directory in a sidecar's command line."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        pid = int(entry.name)
        command = _command(pid)
        if b"sandlot_sidecar" not in command or str(stack.state_dir).encode() not in command:
            continue
        parent = _parent(pid)
        # Without one it has ended since: a child of a sidecar, as likely as not.
        if parent is not None and _command(parent) != command:
            found.append(pid)
    return found


def executor(sidecar: int) -> int:
    (found,) = children(sidecar)
    return found


def init(sidecar: int) -> int:
    """The first process inside the sandbox; a younger one waits for the next generation."""
    found = [pid for pid in children(executor(sidecar)) if _command(pid).rstrip(b"\0") == b"init"]
    return min(found, key=_started)


def children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has ended since
            found += map(int, (task / "children").read_text().split())
    return found


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _parent(pid: int) -> int | None:
    try:
        return int(_stat(pid)[1])
    except OSError:
        return None


def _started(pid: int) -> int:
    """In clock ticks since the machine's start."""
    return int(_stat(pid)[19])


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
