"""Processes without pid races: handles by pidfd, start times against reuse, and a search by command line."""

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
    """Names one process for ever: its pid, its start in clock ticks after boot, and the boot."""

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
    """The key of a process that runs now; None when it is gone or a zombie."""
    try:
        stat = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    if fields[0] in (b"Z", b"X"):
        return None
    return ProcessKey(pid, int(fields[19]), boot_id())


def open_pidfd(key: ProcessKey) -> int | None:
    """A descriptor of exactly that process, or None when it is gone (also when its pid now is another's)."""
    try:
        fd = os.pidfd_open(key.pid)
    except (OSError, OverflowError):
        return None
    # Compared after the open: from here on the descriptor cannot mean another process.
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
    """Every process that has `argument` as one of its command line's: a sidecar and what it forked.

    Command lines are readable for all users, unlike environments. Code in a sandbox can put on such a mark
    too, and then is found with them, which harms nobody else.
    """
    wanted = os.fsencode(argument)
    found: dict[int, ProcessKey] = {}
    for pid, arguments in command_lines():
        if wanted in arguments and pid != os.getpid() and (key := key_of(pid)) is not None:
            found[pid] = key
    return found


def sidecar_configs(below: Path) -> set[Path]:
    """The config files `{below}/{instance}/config.json` that running sidecars were started with."""
    prefix = os.fsencode(below) + b"/"
    return {
        Path(os.fsdecode(argument))
        for _, arguments in command_lines()
        if b"sandlot_sidecar" in arguments
        for argument in arguments
        if argument.startswith(prefix) and argument.count(b"/") == prefix.count(b"/") + 1
    }


def command_lines(proc: Path = _PROC) -> Iterable[tuple[int, list[bytes]]]:
    """The pid and the arguments of every process."""
    for name in os.listdir(proc):
        if not name.isdigit():
            continue
        try:
            yield int(name), (proc / name / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue


def kill_marked(argument: str, *, timeout: float = 20.0) -> list[int]:
    """Kills all of `marked(argument)` and waits for their end. Returns their pids.

    Repeats until none is found, so that one that was being forked at that moment is caught. Raises
    TimeoutError when some are still there after `timeout` seconds.
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
    """SIGKILL to each, then waits up to `timeout` seconds for all."""
    fds = [fd for key in keys if (fd := open_pidfd(key)) is not None]
    try:
        for fd in fds:
            pidfd_kill(fd)
        wait_all(fds, timeout=timeout)
    finally:
        for fd in fds:
            os.close(fd)


def wait_all(pidfds: Iterable[int], *, timeout: float) -> bool:
    """Whether every process has ended within `timeout` seconds. Blocks: for threads and commands."""
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
