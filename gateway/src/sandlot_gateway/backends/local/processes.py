"""Process handles without pid races: pidfds, start times against pid reuse, and a search by command line."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessKey:
    """A unique name of a process: its pid, its start in clock ticks after boot, and the boot id."""

    pid: int
    started: int
    boot: str

    def to_json(self) -> dict[str, object]:
        return {"pid": self.pid, "started": self.started, "boot": self.boot}

    @classmethod
    def from_json(cls, value: object) -> ProcessKey | None:
        match value:
            case {"pid": int(pid), "started": int(started), "boot": str(boot)}:
                return cls(pid, started, boot)
            case _:
                return None


def boot_id() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def key_of(pid: int) -> ProcessKey | None:
    """Return the key of a running process, or None if it is gone or a zombie."""
    try:
        stat = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    if fields[0] in (b"Z", b"X"):
        return None
    return ProcessKey(pid, int(fields[19]), boot_id())


def open_pidfd(key: ProcessKey) -> int | None:
    """Return a pidfd of exactly that process, or None if it is gone, even if its pid was reused."""
    try:
        fd = os.pidfd_open(key.pid)
    except (OSError, OverflowError):
        return None
    # Compare after opening: from here on the descriptor cannot refer to another process.
    if key_of(key.pid) == key:
        return fd
    os.close(fd)
    return None


def pidfd_kill(fd: int, number: int = signal.SIGKILL) -> None:
    try:
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        pass


def marked(argument: str) -> dict[int, ProcessKey]:
    """Return every process with `argument` on its command line: a sidecar and what it forked.

    Command lines are readable by all users, unlike environments. Code in a sandbox can fake the mark, and only gets
    itself found with it.
    """
    wanted = os.fsencode(argument)
    found: dict[int, ProcessKey] = {}
    for pid, arguments in command_lines():
        if wanted in arguments and pid != os.getpid() and (key := key_of(pid)) is not None:
            found[pid] = key
    return found


def sidecar_configs(below: Path) -> set[Path]:
    """Return the config files `{below}/{instance}/config.json` of running sidecars."""
    prefix = os.fsencode(below) + b"/"
    return {
        Path(os.fsdecode(argument))
        for _, arguments in command_lines()
        if b"sandlot_sidecar" in arguments
        for argument in arguments
        if argument.startswith(prefix) and argument.count(b"/") == prefix.count(b"/") + 1
    }


def command_lines(proc: Path = _PROC) -> Iterable[tuple[int, list[bytes]]]:
    """Yield the pid and the arguments of every process."""
    for name in os.listdir(proc):
        if not name.isdigit():
            continue
        try:
            yield int(name), (proc / name / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue


def kill_marked(argument: str, *, timeout: float = 20.0) -> list[int]:
    """Kill all of `marked(argument)`, wait for their end and return their pids.

    Repeats until it finds none, to catch a process that was being forked. Raises TimeoutError if some remain after
    `timeout` seconds.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + timeout
    while found := marked(argument):
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {sorted(found)} did not die of SIGKILL within {timeout:g} s")
        killed |= found.keys()
        kill_all(found.values(), timeout=max(0.0, deadline - time.monotonic()))
    return sorted(killed)


def kill_all(keys: Iterable[ProcessKey], *, timeout: float) -> None:
    """Send SIGKILL to each, then wait up to `timeout` seconds for all."""
    fds = [fd for key in keys if (fd := open_pidfd(key)) is not None]
    try:
        for fd in fds:
            pidfd_kill(fd)
        wait_all(fds, timeout=timeout)
    finally:
        for fd in fds:
            os.close(fd)


def wait_all(pidfds: Iterable[int], *, timeout: float) -> bool:
    """Wait up to `timeout` seconds; return whether every process has ended. Blocks: for threads and commands."""
    waiting = set(pidfds)
    deadline = time.monotonic() + timeout
    poll = select.poll()
    for fd in waiting:
        poll.register(fd, select.POLLIN)
    while waiting:
        left = deadline - time.monotonic()
        if left < 0:
            return False
        for fd, _ in poll.poll(left * 1000):
            poll.unregister(fd)
            waiting.discard(fd)
    return True
