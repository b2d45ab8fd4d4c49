"""Bears a sandbox's init: the tiny program as the first process of a namespace, in a network of its own where told so.

A fork of this process would copy an interpreter for it. So the program is started as commands are, while children of
this process are born in the new namespace. That is forbidden to an ordinary user, where a fork becomes the program.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from fcntl import ioctl

from . import birth, init_mounts, syscalls, tiny

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from .namespaces import Home

# Errors of an exec that say: not this file.
_DOES_NOT_RUN = (errno.ENOEXEC, errno.EACCES, errno.EPERM, errno.ENOENT, errno.EINVAL)
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_FORKED, _SYSFS = b"f", b"s"  # what a fork says of itself


class Born:
    """Its pid, the address at which it has its calls, and what was mounted for its network."""

    def __init__(self, pid: int, *, memory: int, mounts: list[str]) -> None:
        self.pid = pid
        self.memory = memory
        self.mounts = mounts


def bear(home: Home, program: tiny.Program, *, prefix: str, own_network: bool, fds: tuple[int, int]) -> Born:
    """`fds`: what it reads its calls from and writes their results to. Raises OSError."""
    if home.can_bear_elsewhere():
        try:
            if own_network:
                syscalls.unshare(syscalls.CLONE_NEWNET)
                _loopback_up()
            pid = _run(home, program, fds=(*fds, fds[1]))
            if pid:
                mounts = init_mounts.mount_sysfs(prefix) if own_network else []
                return Born(pid, memory=tiny.MEMORY, mounts=mounts)
        finally:
            if own_network:
                syscalls.setns(home.net, syscalls.CLONE_NEWNET)
    return _fork(home, program, prefix=prefix, own_network=own_network, fds=(*fds, fds[1]))


def _run(home: Home, program: tiny.Program, *, fds: tuple[int, ...]) -> int:
    """Its pid, or 0 where no file of it runs."""
    # By the working directory: a program's path is looked for in the new process, where nothing else leads to /proc.
    os.fchdir(home.proc)
    try:
        for mode, fd in program.files(home.proc):
            syscalls.unshare(syscalls.CLONE_NEWPID)
            try:
                return birth.start(
                    ["init"], program=f"self/fd/{fd}", env={}, cwd=None, fds=list(fds), user=None,
                    before_exec=None,
                )  # fmt: skip
            except OSError as error:
                if error.errno not in _DOES_NOT_RUN:
                    raise
                program.does_not_run(mode)
            finally:
                syscalls.setns(home.pid, syscalls.CLONE_NEWPID)
    finally:
        os.chdir("/")
    return 0


def _fork(home: Home, program: tiny.Program, *, prefix: str, own_network: bool, fds: tuple[int, ...]) -> Born:
    memory = ctypes.create_string_buffer(tiny.SIZE)
    files = [fd for _, fd in program.files(home.proc)]
    read, write = os.pipe2(os.O_CLOEXEC)
    try:
        pid = syscalls.clone(syscalls.CLONE_NEWPID | (syscalls.CLONE_NEWNET if own_network else 0))
        if pid == 0:
            _become(home, files, memory, prefix=prefix if own_network else None, fds=fds, says=write)
    finally:
        os.close(write)
    said = b""
    while part := os.read(read, 64):
        said += part
    os.close(read)
    address = ctypes.addressof(memory) if _FORKED in said else tiny.MEMORY
    return Born(pid, memory=address, mounts=["/sys"] if _SYSFS in said else [])


def _become(
    home: Home,
    files: list[int],
    memory: ctypes.Array[ctypes.c_char],
    *,
    prefix: str | None,
    fds: tuple[int, ...],
    says: int,
) -> NoReturn:
    """`prefix`: of the root, where a network of its own is to be shown there."""
    try:
        if prefix is not None:
            _loopback_up()
            if init_mounts.mount_sysfs(prefix):
                os.write(says, _SYSFS)
        fields = os.fsdecode(home.read("self/stat")).rpartition(")")[2].split()
        for number, fd in enumerate(fds):
            os.dup2(fd, number)
        for fd in files:
            try:
                os.execve(fd, ["init"], {})
            except OSError:
                continue
        os.write(says, _FORKED)
        # /proc/1/cmdline can be read by anyone inside: the sidecar's arguments are none of their business.
        for start, end in ((45, 46), (47, 48)):
            syscalls.wipe(int(fields[start]), int(fields[end]))
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        tiny.obey(syscalls.LIBC, memory=memory)
    finally:
        os._exit(1)


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", ioctl(sock, _SIOCGIFFLAGS, request))[1]
        if not flags & 1:  # gVisor's is up at once, and cannot be set
            ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | 1))
