"""The executor's original namespaces, kept reachable after it has left them."""

from __future__ import annotations

import errno
import os
import signal

from . import syscalls
from .errors import SetupError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    _T = TypeVar("_T")

_PLACE = "/sys"  # for a moment, of the file system of an empty namespace
_HINT = (
    "user namespaces are not allowed here: run as root, or set kernel.unprivileged_userns_clone=1 (Debian), "
    "user.max_user_namespaces above 0, or kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu)"
)


class Home:
    """Descriptors of the original /proc and namespaces (a pod's container's, after `enter_target`)."""

    def __init__(self) -> None:
        self.proc = os.open("/proc", os.O_PATH | os.O_CLOEXEC)
        self.net = self._open("self/ns/net")
        self.pid = self._open("self/ns/pid")
        self._original_mnt = self._open("self/ns/mnt")
        self.rootless = False
        try:
            syscalls.unshare(syscalls.CLONE_NEWNS)
        except PermissionError:
            self._enter_user_namespace()
        # Without this, the sandbox's mounts would propagate to the host.
        syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
        self.mnt = self.mount_namespace()
        self._empty_mnt = -1

    def mount_namespace(self) -> int:
        """Open the current mount namespace."""
        return self._open("self/ns/mnt")

    def _open(self, name: str) -> int:
        return os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.proc)

    def _enter_user_namespace(self) -> None:
        uid, gid = os.geteuid(), os.getegid()
        try:
            syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS)
            self._write("self/setgroups", "deny")
            self._write("self/uid_map", f"0 {uid} 1")
            self._write("self/gid_map", f"0 {gid} 1")
        except OSError as error:
            if error.errno in (errno.EPERM, errno.ENOSPC, errno.EACCES, errno.EINVAL):
                raise SetupError(f"{_HINT} ({error})") from error
            raise
        self.rootless = True
        # The change of credentials has cleared it.
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)

    def _write(self, name: str, text: str) -> None:
        fd = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=self.proc)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)

    def enter_target(self, pid: int) -> None:
        """Enter the namespaces of a pod's container and make them the home; raises OSError."""
        fds = {
            kind: self._open(f"{pid}/ns/{name}")
            for name, kind in (
                ("ipc", syscalls.CLONE_NEWIPC),
                ("uts", syscalls.CLONE_NEWUTS),
                ("net", syscalls.CLONE_NEWNET),
                ("mnt", syscalls.CLONE_NEWNS),
            )
        }
        for kind, fd in fds.items():
            syscalls.setns(fd, kind)
        os.close(self.net)
        self.net = fds[syscalls.CLONE_NEWNET]
        os.close(fds[syscalls.CLONE_NEWIPC])
        os.close(fds[syscalls.CLONE_NEWUTS])
        os.close(self.mnt)
        self.mnt = fds[syscalls.CLONE_NEWNS]

    def other_cgroup_namespace(self, pid: int) -> bool:
        """Return whether a process has another cgroup namespace than this one; raises OSError."""
        try:
            own, other = (
                os.stat(f"{name}/ns/cgroup", dir_fd=self.proc).st_ino for name in ("self", str(pid))
            )
        except FileNotFoundError:
            return False
        return own != other

    def in_cgroup_namespace(self, pid: int, work: Callable[[], _T]) -> _T:
        """Do some work in a process's cgroup namespace and return its result; raises OSError."""
        if not self.other_cgroup_namespace(pid):
            return work()
        own, other = self._open("self/ns/cgroup"), self._open(f"{pid}/ns/cgroup")
        try:
            syscalls.setns(other, syscalls.CLONE_NEWCGROUP)
            try:
                return work()
            finally:
                syscalls.setns(own, syscalls.CLONE_NEWCGROUP)
        finally:
            os.close(own)
            os.close(other)

    def copy_mounts(self) -> None:
        """Make a private copy of the current mounts and use it as the home; raises OSError."""
        syscalls.unshare(syscalls.CLONE_NEWNS)
        syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
        os.close(self.mnt)
        self.mnt = self.mount_namespace()

    def can_set_child_pid_namespace(self) -> bool:
        """Return whether this process may change the PID namespace of its children and change it back."""
        try:
            syscalls.setns(self.pid, syscalls.CLONE_NEWPID)
        except OSError:  # a rootless executor lacks CAP_SYS_ADMIN over the original PID namespace
            return False
        return True

    def enter_original_mounts(self) -> None:
        """Enter the sidecar's own mount namespace; raises OSError if rootless."""
        syscalls.setns(self._original_mnt, syscalls.CLONE_NEWNS)

    def prepare_empty_mounts(self) -> None:
        """Make the namespace that `enter_copy_of_empty_mounts` copies, in a moment when nobody waits. Raises OSError."""
        self.enter_original_mounts()
        syscalls.unshare(syscalls.CLONE_NEWNS)
        syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
        flags = syscalls.MS_NOSUID | syscalls.MS_NODEV
        syscalls.mount("sandlot", _PLACE, "tmpfs", flags, "mode=700")
        syscalls.change_root(_PLACE)
        self._empty_mnt = self.mount_namespace()

    def enter_copy_of_empty_mounts(self) -> None:
        """Enter a new mount namespace that has nothing but an empty directory. Raises OSError."""
        if self._empty_mnt < 0:
            self.prepare_empty_mounts()
        syscalls.setns(self._empty_mnt, syscalls.CLONE_NEWNS)
        syscalls.unshare(syscalls.CLONE_NEWNS)

    def enter_new_mount_namespace(self) -> None:
        """Enter a fresh private copy of the home's mount namespace."""
        syscalls.setns(self.mnt, syscalls.CLONE_NEWNS)
        syscalls.unshare(syscalls.CLONE_NEWNS)
        syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)

    def pids(self) -> list[int]:
        """Return all pids in the home's /proc."""
        directory = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.proc)
        try:
            return [int(name) for name in os.listdir(directory) if name.isdigit()]
        finally:
            os.close(directory)

    def permitted(self) -> int:
        """Return this process's permitted capabilities; raises OSError."""
        text = self.read("self/status")
        start = text.index(b"CapPrm:") + 7
        return int(text[start : text.index(b"\n", start)], 16)

    def read(self, name: str) -> bytes:
        """Read a file of the home's /proc; raises OSError."""
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.proc)
        try:
            parts = []
            while part := os.read(fd, 65536):
                parts.append(part)
            return b"".join(parts)
        finally:
            os.close(fd)


def unescape(text: str) -> str:
    """Decode mountinfo's octal escapes."""
    if "\\" not in text:
        return text
    parts = text.split("\\")
    return parts[0] + "".join(chr(int(part[:3], 8)) + part[3:] for part in parts[1:])


class Mount:
    """One line of mountinfo."""

    __slots__ = ("kind", "options", "point", "root", "source", "super_options")

    def __init__(self, line: str) -> None:
        left, _, right = line.partition(" - ")
        fields, tail = left.split(" "), right.split(" ")
        self.root = unescape(fields[3])
        self.point = unescape(fields[4])
        self.options = fields[5]
        self.kind = tail[0]
        self.source = unescape(tail[1])
        self.super_options = tail[2] if len(tail) > 2 else ""

    @property
    def writable(self) -> bool:
        """Whether the mount and its file system are writable."""
        return "ro" not in (*self.options.split(","), *self.super_options.split(","))


def is_below(path: str, parent: str) -> bool:
    """Return whether a path is `parent` or below it."""
    return path == parent or path.startswith(parent.rstrip("/") + "/")


def mounts(home: Home, process: str = "self") -> list[Mount]:
    """Return the mounts that this or another process sees, in mount order; raises OSError."""
    text = os.fsdecode(home.read(f"{process}/mountinfo"))
    return [Mount(line) for line in text.splitlines()]
