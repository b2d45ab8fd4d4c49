"""Reads a container's restrictions from its first process and applies them to every runner, hence to every op."""

from __future__ import annotations

import os
import resource

from . import ptrace, syscalls
from .users import User

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .namespaces import Home

# A runner's own, beside the container's: to switch to the op's user, signal it, give it a terminal, and keep it from
# lowering its oom_score_adj (privileges.SYS_RESOURCE). Ops do not get them: the bounding set limits an exec.
NEEDED = sum(
    1 << number for number in (0, 1, 5, 6, 7, 24)
)  # chown, dac_override, kill, setgid, setuid, sys_resource
SECCOMP_FILTER = "2"
# RLIMIT_ numbers by their names in /proc/PID/limits.
LIMITS = {
    "Max cpu time": 0, "Max file size": 1, "Max data size": 2, "Max stack size": 3, "Max core file size": 4,
    "Max resident set": 5, "Max processes": 6, "Max open files": 7, "Max locked memory": 8,
    "Max address space": 9, "Max file locks": 10, "Max pending signals": 11, "Max msgqueue size": 12,
    "Max nice priority": 13, "Max realtime priority": 14, "Max realtime timeout": 15,
}  # fmt: skip
NAME_WIDTH = 26


class Confinement:
    """A container's restrictions, read before its namespaces are entered; `notes` lists unreadable ones."""

    def __init__(self, *, home: Home, pid: int) -> None:
        self.notes: list[str] = []
        status = _status(home, pid)
        self.inheritable = int(status.get("CapInh", "0"), 16)
        self.bounding = int(status.get("CapBnd", "0"), 16)
        if int(status.get("CapAmb", "0"), 16):
            self.notes.append("confinement: the container's ambient capabilities are not given to ops")
        self.no_new_privs = status.get("NoNewPrivs") == "1"
        self.uid = int(status["Uid"].split()[1])
        self.gid = int(status["Gid"].split()[1])
        self.groups = [int(group) for group in status.get("Groups", "").split()]
        self.limits = _limits(home, pid)
        self.oom_score = _oom_score(home, pid)
        self.label, self.label_file = _label(home, pid)
        self.filters: list[bytes] = []
        if status.get("Seccomp") == SECCOMP_FILTER:
            try:
                self.filters = ptrace.seccomp_filters(pid)
            except OSError as error:
                self.notes.append(
                    f"confinement: the container's seccomp filter cannot be read ({error}), the sidecar's is used"
                )

    @property
    def lacks_filter(self) -> bool:
        """Whether the container has a seccomp filter that could not be read."""
        return any("seccomp" in note for note in self.notes)

    def user(self, *, home_directory: str, name: str | None) -> User:
        """Return the default user of ops."""
        return User(uid=self.uid, gid=self.gid, groups=self.groups, home=home_directory, name=name)

    def apply(self, *, home: Home, permitted: int) -> None:
        """Apply the restrictions to this process and its future children. Raises OSError."""
        for number, soft, hard in self.limits:
            try:
                resource.setrlimit(number, (soft, hard))
            except (OSError, ValueError):
                # Raising it above the sidecar's own limit needs CAP_SYS_RESOURCE.
                continue
        if self.label is not None:
            _write(home, f"self/{self.label_file}", self.label)
        syscalls.new_session_keyring()
        # A runner is root; an op of another user gets that user's groups when it switches.
        os.setgroups(self.groups if self.uid == self.gid == 0 else [])
        syscalls.bound_capabilities(self.bounding)
        syscalls.prctl(syscalls.PR_CAP_AMBIENT, syscalls.PR_CAP_AMBIENT_CLEAR_ALL)
        if self.no_new_privs:
            syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        for filters in self.filters:
            syscalls.set_filter(filters)
        syscalls.capset((self.bounding | NEEDED) & permitted, inheritable=self.inheritable)
        # Between vfork and exec, a child shares this memory inside the sandbox: deny ptrace and /proc/PID/mem.
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)


def _status(home: Home, pid: int) -> dict[str, str]:
    lines = home.read(f"{pid}/status").decode("utf-8", "replace").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _limits(home: Home, pid: int) -> list[tuple[int, int, int]]:
    """Return (number, soft, hard) of each rlimit; prlimit(2) on another user's process needs CAP_SYS_RESOURCE."""
    try:
        lines = home.read(f"{pid}/limits").decode().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        number = LIMITS.get(line[:NAME_WIDTH].strip())
        if number is not None:
            soft, hard = (_limit(text) for text in line[NAME_WIDTH:].split()[:2])
            found.append((number, soft, hard))
    return found


def _limit(text: str) -> int:
    return resource.RLIM_INFINITY if text == "unlimited" else int(text)


def _oom_score(home: Home, pid: int) -> int | None:
    try:
        return int(home.read(f"{pid}/oom_score_adj"))
    except (OSError, ValueError):
        return None


def _label(home: Home, pid: int) -> tuple[bytes | None, str]:
    """Return the label to set before an exec, or None, and the /proc attribute file to write it to."""
    for read, written in (("attr/apparmor/current", "attr/apparmor/exec"), ("attr/current", "attr/exec")):
        try:
            label = home.read(f"{pid}/{read}").rstrip(b"\0\n")
        except OSError:
            continue
        name, mode, _ = label.rpartition(b" (")
        if mode:
            return b"exec " + name, written
        if label == b"unconfined":
            return None, written
        if label:
            return label, written
    return None, ""


def _write(home: Home, name: str, data: bytes) -> None:
    fd = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=home.proc)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)
