"""Starts a program: by `vfork` where the machine can, else with CPython's `_posixsubprocess.fork_exec`.

A program for another user starts with the latter: its process must not share the memory of a root process once it is
that user's. `subprocess`, which is built on it, costs each runner 0.4 MiB and each op 60 µs more. The function is private
to CPython: where it takes other arguments, this module uses `subprocess`.
"""

from __future__ import annotations

import _posixsubprocess
import errno
import os
from fcntl import ioctl

from . import vfork

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import Any

    from .users import User

MAX_REPORT = 4096

_fork_exec: Any = _posixsubprocess.fork_exec


def _is_known() -> bool:
    try:
        _fork_exec()
    except TypeError as error:
        return " 23 arguments" in str(error)
    return False


KNOWN = _is_known()  # CPython 3.11 to 3.13
if not KNOWN:
    import subprocess
_starters: list[vfork.Starter | None] = []  # the process's own, once it is known whether it can have one


def start(
    argv: list[str],
    *,
    env: dict[str, str],
    cwd: str | None,
    fds: list[int],
    user: User | None,
    terminal: bool = False,
    program: str | None = None,
) -> int:
    """Start a program in a new session with three descriptors; return its pid, which the caller waits for.

    `terminal`: the first descriptor becomes the controlling terminal. `program` defaults to `argv[0]`; `user` and
    `cwd` None keep the caller's. All other descriptors must be close-on-exec. Raises OSError, whose filename is `cwd`
    if that was the cause, and ValueError for arguments that exec cannot take.
    """
    starter = _starter() if user is None and min(fds) > 2 else None
    if starter is None and not KNOWN:
        return _start_by_module(
            argv, env=env, cwd=cwd, fds=fds, user=user, terminal=terminal, program=program
        )
    listing = []
    for key, value in env.items():
        if "=" in key:
            raise ValueError("illegal environment variable name")
        listing.append(os.fsencode(f"{key}={value}"))
    program = program or argv[0]
    if "/" in program:
        programs = (os.fsencode(program),)
    else:
        programs = tuple(
            os.fsencode(f"{directory or '.'}/{program}") for directory in env.get("PATH", "").split(":")
        )
    words = [os.fsencode(part) for part in argv]
    directory = None if cwd is None else os.fsencode(cwd)
    if starter is not None:
        try:
            return starter.start(
                words, programs=programs, env=listing, cwd=directory, fds=fds, terminal=terminal
            )
        except OSError as error:
            if error.filename is None:
                error.filename = program
            raise
    read, write = os.pipe2(os.O_CLOEXEC)
    try:
        try:
            pid = _fork_exec(
                words, programs, False, (write,), directory, listing,
                fds[0], -1, -1, fds[1], -1, fds[2], read, write, True, True, -1,
                user.gid if user else None, user.groups if user else None, user.uid if user else None,
                -1, _take_terminal if terminal else None, True,
            )  # fmt: skip
        finally:
            os.close(write)
        report = _read_report(read)
    finally:
        os.close(read)
    if report:
        os.waitpid(pid, 0)
        _raise(report, program=program, cwd=cwd)
    return pid


def _starter() -> vfork.Starter | None:
    if not _starters:
        try:
            _starters.append(vfork.Starter())
        except OSError:
            _starters.append(None)
    return _starters[0]


def _take_terminal() -> None:
    ioctl(0, vfork.TIOCSCTTY, 0)


def _read_report(fd: int) -> bytes:
    """Read the child's error report until its exec or exit closes the pipe; one read may return only a part."""
    report = b""
    while len(report) < MAX_REPORT and (part := os.read(fd, MAX_REPORT)):
        report += part
    return report


def _raise(report: bytes, *, program: str, cwd: str | None) -> None:
    """Raise the reported error, `KIND:ERRNO IN HEX:TEXT`; a text of `noexec…` means a failure before the exec."""
    kind, number, text = (*report.split(b":", 2), b"", b"")[:3]
    code = int(number, 16) if kind == b"OSError" else errno.EIO
    raise OSError(code, os.strerror(code), cwd if text.startswith(b"noexec") else program)


def _start_by_module(
    argv: list[str],
    *,
    env: dict[str, str],
    cwd: str | None,
    fds: list[int],
    user: User | None,
    terminal: bool,
    program: str | None,
) -> int:
    process = subprocess.Popen(
        argv,
        executable=program,
        stdin=fds[0],
        stdout=fds[1],
        stderr=fds[2],
        env=env,
        cwd=cwd,
        close_fds=False,
        start_new_session=True,
        preexec_fn=_take_terminal if terminal else None,
        user=user.uid if user else None,
        group=user.gid if user else None,
        extra_groups=user.groups if user else None,
    )
    # Otherwise Popen would wait for the pid when collected, and another process may have that pid by then.
    process.returncode = 0
    return process.pid
