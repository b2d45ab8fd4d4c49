"""One control group under cgroup v1 or v2: its limits, its counters and its members."""

from __future__ import annotations

import errno
import os

# What is read or written, by name: the controller it belongs to and its file, under v1 and v2.
FILES = {
    "memory_limit": ("memory", "memory.limit_in_bytes", "memory.max"),
    "memory": ("memory", "memory.usage_in_bytes", "memory.current"),
    "memory_peak": ("memory", "memory.max_usage_in_bytes", "memory.peak"),
    "memory_events": ("memory", "memory.oom_control", "memory.events"),
    "memory_refused": ("memory", "memory.failcnt", "memory.events"),
    "pids_limit": ("pids", "pids.max", "pids.max"),
    "pids": ("pids", "pids.current", "pids.current"),
    "pids_events": ("pids", "pids.events", "pids.events"),
    "cpu": ("cpuacct", "cpuacct.usage", "cpu.stat"),
}
PERIOD = 100_000
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def write_file(directory: int, name: str, text: str) -> None:
    """Write a file of a group; raises OSError."""
    fd = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def read_file(directory: int, name: str) -> str:
    """Read a file of a group; raises OSError."""
    fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    try:
        parts = []
        while part := os.read(fd, 65536):
            parts.append(part)
        return b"".join(parts).decode("ascii", "replace")
    finally:
        os.close(fd)


def field(text: str, name: str) -> int:
    """The number after a name in a flat keyed file; 0 when it is not there."""
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


class Group:
    """A group: one directory per hierarchy, open; the sandbox's, or a runner's below it."""

    def __init__(self, *, version: int, name: str, directories: dict[str, int]) -> None:
        self.version = version
        self.name = name
        self.directories = directories
        self._files: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self.directories)

    @property
    def track(self) -> int:
        """The directory whose cgroup.procs says who belongs to the group."""
        for controller in ("pids", "memory", "cpuacct"):
            if controller in self.directories:
                return self.directories[controller]
        return next(iter(self.directories.values()))

    def child(self, name: str) -> Group:
        """Make a group below this one; raises OSError."""
        directories: dict[str, int] = {}
        made: dict[int, int] = {}
        for controller, parent in self.directories.items():
            if controller == "cpu" and self.version == 1:
                directories[controller] = os.dup(parent)
                continue
            if parent not in made:
                try:
                    os.mkdir(name, dir_fd=parent)
                except FileExistsError:
                    pass
                made[parent] = os.open(name, DIRECTORY, dir_fd=parent)
            directories[controller] = made[parent]
        return Group(version=self.version, name=name, directories=directories)

    def below(self) -> list[str]:
        """The names of the groups directly below; raises OSError."""
        return [entry.name for entry in os.scandir(self.track) if entry.is_dir(follow_symlinks=False)]

    def join(self) -> None:
        """Put the calling process in; raises OSError."""
        for directory in set(self.directories.values()):
            write_file(directory, "cgroup.procs", "0")

    def descriptor(self, what: str) -> int:
        """A file's descriptor, kept open; -1 where there is no such file."""
        fd = self._files.get(what)
        if fd is None:
            controller, *names = FILES[what]
            fd = -1
            directory = self.directories.get(controller)
            if directory is not None:
                # A peak of v2 is set back for the descriptor it was written through, from Linux 6.12 on.
                access = os.O_RDWR if what == "memory_peak" else os.O_RDONLY
                try:
                    fd = os.open(names[self.version - 1], access | os.O_CLOEXEC, dir_fd=directory)
                except OSError:
                    fd = -1
            self._files[what] = fd
        return fd

    def read(self, what: str) -> str | None:
        """A file's content; None where there is no such file."""
        fd = self.descriptor(what)
        if fd < 0:
            return None
        try:
            return os.pread(fd, 4096, 0).decode("ascii", "replace")
        except OSError:
            return None

    def number(self, what: str) -> int | None:
        """A file that is one number."""
        text = self.read(what)
        if text is None:
            return None
        text = text.strip()
        return int(text) if text.isdigit() else None

    def write(self, what: str, text: str) -> bool:
        """Set a file; whether the kernel took it."""
        controller, *names = FILES[what]
        directory = self.directories.get(controller)
        if directory is None:
            return False
        try:
            write_file(directory, names[self.version - 1], text)
        except OSError:
            return False
        return True

    def reset_peak(self) -> int | None:
        """Let the peak of memory begin anew, where the kernel can; returns where it stands then."""
        fd = self._files.get("memory_peak")
        if fd is None and self.read("memory_peak") is not None:
            fd = self._files["memory_peak"]
        if fd is None or fd < 0:
            return None
        try:
            os.pwrite(fd, b"0", 0)
        except OSError:
            pass
        return self.number("memory_peak")

    def limit(self, what: str, value: int | None) -> bool:
        """Set a limit; None takes it away."""
        none = "-1" if what == "memory_limit" and self.version == 1 else "max"
        return self.write(what, none if value is None else str(value))

    def limit_cpu(self, cores: float | None) -> bool:
        """Limit processor time to a number of cores; None takes it away."""
        directory = self.directories.get("cpu")
        if directory is None:
            return False
        quota = None if cores is None else max(1000, int(cores * PERIOD))
        try:
            if self.version == 2:
                write_file(directory, "cpu.max", f"{'max' if quota is None else quota} {PERIOD}")
            else:
                write_file(directory, "cpu.cfs_period_us", str(PERIOD))
                write_file(directory, "cpu.cfs_quota_us", str(-1 if quota is None else quota))
        except OSError:
            return False
        return True

    def cpu_seconds(self) -> float | None:
        """Processor time used by all members so far."""
        text = self.read("cpu")
        if text is None:
            return None
        return field(text, "usage_usec") / 1e6 if self.version == 2 else int(text) / 1e9

    def oom_kills(self) -> int:
        """How many members the kernel has killed for memory."""
        return field(self.read("memory_events") or "", "oom_kill")

    def memory_refused(self) -> int:
        """How often its own limit of memory was reached; nobody above it or below counts here under v1, all below under v2."""
        text = self.read("memory_refused") or ""
        return field(text, "oom") if self.version == 2 else int(text or 0)

    @property
    def loose(self) -> bool:
        """gVisor's: it counts, but kills nobody for memory, and its limit of processes lets some through."""
        return "memory" in self.directories and self.read("memory_events") is None

    def pids_hits(self) -> int:
        """How many forks the limit of processes has refused; where nobody counts (gVisor), 1 while it is reached."""
        events = self.read("pids_events")
        return int(self.full()) if events is None else field(events, "max")

    def full(self) -> bool:
        """Whether there are as many processes as may be, or nearly: those of a bomb die and are born all the time."""
        limit = (self.read("pids_limit") or "").strip()
        return limit.isdigit() and (self.number("pids") or 0) >= int(limit) - max(2, int(limit) // 50)

    def overrun(self, *, before: int = 0) -> bool:
        """Whether a crowd is at the limit of processes and has been refused forks since `before`: a fork bomb."""
        if self.pids_hits() <= before:
            return False
        limit = (self.read("pids_limit") or "").strip()
        return limit.isdigit() and 2 * (self.number("pids") or 0) > int(limit)

    def members(self) -> list[int]:
        """Pids of all members, also in groups that they made below (seen from the caller's namespace)."""
        found: list[int] = []
        _members(self.track, found)
        return found

    def remove(self, parent: Group) -> bool:
        """Remove the group from its parent; False while a member is left."""
        self.close()
        gone = True
        for controller, directory in parent.directories.items():
            if controller == "cpu" and self.version == 1:
                continue
            gone = remove_group(directory, self.name) and gone
        return gone

    def close(self) -> None:
        """Close what is open."""
        for fd in {*self._files.values(), *self.directories.values()}:
            if fd >= 0:
                os.close(fd)
        self._files.clear()
        self.directories.clear()


def _members(directory: int, found: list[int]) -> None:
    try:
        found.extend(int(line) for line in read_file(directory, "cgroup.procs").split())
    except OSError as error:
        # ENODEV, ENOENT: the group was removed meanwhile, as the executor does while a job of it kills.
        if error.errno not in (errno.ENODEV, errno.ENOENT, errno.EOPNOTSUPP):
            raise
    # The number of links says without a listing whether somebody made groups below.
    if os.fstat(directory).st_nlink <= 2:
        return
    for entry in os.scandir(directory):
        if entry.is_dir(follow_symlinks=False):
            child = os.open(entry.name, DIRECTORY, dir_fd=directory)
            try:
                _members(child, found)
            finally:
                os.close(child)


def remove_group(parent: int, name: str) -> bool:
    """Remove a group with the empty ones below it; False while a member is left."""
    try:
        os.rmdir(name, dir_fd=parent)
        return True
    except FileNotFoundError:
        return True
    except OSError:
        pass
    try:
        directory = os.open(name, DIRECTORY, dir_fd=parent)
    except OSError:
        return False
    try:
        for entry in os.scandir(directory):
            if entry.is_dir(follow_symlinks=False):
                remove_group(directory, entry.name)
    finally:
        os.close(directory)
    try:
        os.rmdir(name, dir_fd=parent)
    except OSError:
        return False
    return True
