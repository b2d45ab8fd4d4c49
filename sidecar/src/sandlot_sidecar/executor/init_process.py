"""Starts a sandbox's init program as PID 1 of a new PID namespace, and of a new network namespace if requested.

A fork would copy the interpreter. So the executor unshares the PID namespace of its children and starts the program
like a command (`fork_exec`). An unprivileged user may not do that; then a fork executes the program.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from fcntl import ioctl

from . import fork_exec, init_mounts, init_program, syscalls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from .namespaces import Home

# exec errors that mean that this file cannot run here.
_NOT_EXECUTABLE = (errno.ENOEXEC, errno.EACCES, errno.EPERM, errno.ENOENT, errno.EINVAL)
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_FORKED, _SYSFS = b"f", b"s"  # reports of the forked child: it runs the calls itself; it has mounted /sys


class InitProcess:
    """A started init: its pid, the address of its list of calls, and the mounts of its network."""

    def __init__(self, pid: int, *, memory: int, mounts: list[str]) -> None:
        self.pid = pid
        self.memory = memory
        self.mounts = mounts


def start(
    home: Home, program: init_program.Program, *, prefix: str, own_network: bool, fds: tuple[int, int]
) -> InitProcess:
    """Start the program; it reads calls from `fds[0]` and writes results to `fds[1]`. Raises OSError."""
    if home.can_set_child_pid_namespace():
        try:
            if own_network:
                syscalls.unshare(syscalls.CLONE_NEWNET)
                _loopback_up()
            pid = _run_program(home, program, fds=(*fds, fds[1]))
            if pid:
                mounts = init_mounts.mount_sysfs(prefix) if own_network else []
                return InitProcess(pid, memory=init_program.MEMORY, mounts=mounts)
        finally:
            if own_network:
                syscalls.setns(home.net, syscalls.CLONE_NEWNET)
    return _fork(home, program, prefix=prefix, own_network=own_network, fds=(*fds, fds[1]))


def _run_program(home: Home, program: init_program.Program, *, fds: tuple[int, ...]) -> int:
    """Start the program without a fork of the interpreter; return its pid, or 0 if no file of it can run."""
    # Relative to /proc: the new process resolves the path, and has no other way to the host's /proc.
    os.fchdir(home.proc)
    try:
        for mode, fd in program.files(home.proc):
            syscalls.unshare(syscalls.CLONE_NEWPID)
            try:
                return fork_exec.start(
                    ["init"], program=f"self/fd/{fd}", env={}, cwd=None, fds=list(fds), user=None,
                )  # fmt: skip
            except OSError as error:
                if error.errno not in _NOT_EXECUTABLE:
                    raise
                program.exclude(mode)
            finally:
                syscalls.setns(home.pid, syscalls.CLONE_NEWPID)
    finally:
        os.chdir("/")
    return 0


def _fork(
    home: Home, program: init_program.Program, *, prefix: str, own_network: bool, fds: tuple[int, ...]
) -> InitProcess:
    memory = ctypes.create_string_buffer(init_program.SIZE)
    files = [fd for _, fd in program.files(home.proc)]
    read, write = os.pipe2(os.O_CLOEXEC)
    try:
        pid = syscalls.clone(syscalls.CLONE_NEWPID | (syscalls.CLONE_NEWNET if own_network else 0))
        if pid == 0:
            _run_as_init(
                home, files, memory, prefix=prefix if own_network else None, fds=fds, report_fd=write
            )
    finally:
        os.close(write)
    report = b""
    while part := os.read(read, 64):
        report += part
    os.close(read)
    address = ctypes.addressof(memory) if _FORKED in report else init_program.MEMORY
    return InitProcess(pid, memory=address, mounts=["/sys"] if _SYSFS in report else [])


def _run_as_init(
    home: Home,
    files: list[int],
    memory: ctypes.Array[ctypes.c_char],
    *,
    prefix: str | None,
    fds: tuple[int, ...],
    report_fd: int,
) -> NoReturn:
    """Set up the forked child and run the program; `prefix`: the root to mount /sys in, for an own network."""
    try:
        if prefix is not None:
            _loopback_up()
            if init_mounts.mount_sysfs(prefix):
                os.write(report_fd, _SYSFS)
        fields = os.fsdecode(home.read("self/stat")).rpartition(")")[2].split()
        for number, fd in enumerate(fds):
            os.dup2(fd, number)
        for fd in files:
            try:
                os.execve(fd, ["init"], {})
            except OSError:
                continue
        os.write(report_fd, _FORKED)
        # User code can read /proc/1/cmdline: do not show it the sidecar's arguments.
        for start, end in ((45, 46), (47, 48)):
            syscalls.wipe(int(fields[start]), int(fields[end]))
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        init_program.run_calls(syscalls.LIBC, memory=memory)
    finally:
        os._exit(1)


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", ioctl(sock, _SIOCGIFFLAGS, request))[1]
        if not flags & 1:  # under gVisor it is already up and cannot be set
            ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | 1))
