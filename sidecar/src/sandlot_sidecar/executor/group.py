"""One control group under cgroup v1 or v2: its limits, counters and members."""

from __future__ import annotations

import errno
import os

from .group_directories import DIRECTORY, make_group, open_group, remove_group
from .group_files import field, read_file, write_file

# name -> its controller, and its file under v1 and v2.
FILES = {
    "memory_limit": ("memory", "memory.limit_in_bytes", "memory.max"),
    "memory": ("memory", "memory.usage_in_bytes", "memory.current"),
    "memory_stat": ("memory", "memory.stat", "memory.stat"),
    "memory_peak": ("memory", "memory.max_usage_in_bytes", "memory.peak"),
    "memory_events": ("memory", "memory.oom_control", "memory.events"),
    "memory_refused": ("memory", "memory.failcnt", "memory.events"),
    "pids_limit": ("pids", "pids.max", "pids.max"),
    "pids": ("pids", "pids.current", "pids.current"),
    "pids_events": ("pids", "pids.events", "pids.events"),
    "cpu": ("cpuacct", "cpuacct.usage", "cpu.stat"),
    "cpu_system": ("cpuacct", "cpuacct.usage_sys", "cpu.stat"),
}
PERIOD = 100_000


class Group:
    """The group of the sandbox or of a runner below it: one open directory per hierarchy."""

    def __init__(self, *, version: int, name: str, directories: dict[str, int]) -> None:
        self.version = version
        self.name = name
        self.directories = directories
        self._files: dict[str, int] = {}
        self._limits: dict[str, int] = {}  # opened for writing, see `open_limits`

    def __bool__(self) -> bool:
        return bool(self.directories)

    @property
    def track(self) -> int:
        """The directory whose cgroup.procs lists the members."""
        for controller in ("pids", "memory", "cpuacct"):
            if controller in self.directories:
                return self.directories[controller]
        return next(iter(self.directories.values()))

    def child(self, name: str, *, make: bool = True) -> Group:
        """Make a child group, or open what there is of it; raises OSError, and then leaves none."""
        child = Group(version=self.version, name=name, directories={})
        made: dict[int, int | None] = {}
        try:
            for controller, parent in self.directories.items():
                if controller == "cpu" and self.version == 1:
                    if make:
                        child.directories[controller] = os.dup(parent)
                    continue
                if parent not in made:
                    made[parent] = make_group(parent, name) if make else open_group(parent, name)
                directory = made[parent]
                if directory is not None:
                    child.directories[controller] = directory
        except OSError:
            if make:
                child.remove(self)
            child.close()
            raise
        return child

    def below(self) -> list[str]:
        """Return the names of the direct child groups; raises OSError."""
        return [entry.name for entry in os.scandir(self.track) if entry.is_dir(follow_symlinks=False)]

    def join(self) -> None:
        """Move the calling process into the group; raises OSError."""
        for directory in set(self.directories.values()):
            write_file(directory, "cgroup.procs", "0")

    def descriptor(self, what: str) -> int:
        """Return a file's descriptor, kept open; -1 if there is no such file."""
        fd = self._files.get(what)
        if fd is None:
            controller, *names = FILES[what]
            fd = -1
            directory = self.directories.get(controller)
            if directory is not None:
                # From Linux 6.12 on, a write resets the v2 peak for this descriptor only.
                access = os.O_RDWR if what == "memory_peak" else os.O_RDONLY
                try:
                    fd = os.open(names[self.version - 1], access | os.O_CLOEXEC, dir_fd=directory)
                except OSError:
                    fd = -1
            self._files[what] = fd
        return fd

    def open_limits(self) -> list[int]:
        """Open what `write` and `reset_peak` need under v2 and keep it open; return the descriptors. Raises OSError.

        A process calls it before it enters a cgroup namespace whose root is this group: with the mount option
        `nsdelegate`, the kernel refuses writes to files of the root that were opened inside.
        """
        if self.version == 1:
            return []
        for what in ("memory_limit", "pids_limit"):
            controller, _, name = FILES[what]
            if controller in self.directories:
                self._limits[what] = os.open(
                    name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=self.directories[controller]
                )
        return [*self._limits.values(), self.descriptor("memory_peak")]

    def read(self, what: str) -> str | None:
        """Return a file's content, or None if there is no such file."""
        fd = self.descriptor(what)
        if fd < 0:
            return None
        try:
            return os.pread(fd, 4096, 0).decode("ascii", "replace")
        except OSError:
            return None

    def number(self, what: str) -> int | None:
        """Return the number in a file, or None."""
        text = self.read(what)
        if text is None:
            return None
        text = text.strip()
        return int(text) if text.isdigit() else None

    def write(self, what: str, text: str) -> bool:
        """Write a file; return whether the kernel accepted it."""
        controller, *names = FILES[what]
        directory = self.directories.get(controller)
        if directory is None:
            return False
        try:
            if what in self._limits:
                os.pwrite(self._limits[what], text.encode(), 0)
            else:
                write_file(directory, names[self.version - 1], text)
        except OSError:
            return False
        return True

    def reset_peak(self) -> int | None:
        """Reset the memory peak if the kernel can; return the peak afterwards."""
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
        """Set a limit, or remove it (None); return whether the kernel accepted it."""
        none = "-1" if what == "memory_limit" and self.version == 1 else "max"
        return self.write(what, none if value is None else str(value))

    def limit_cpu(self, cores: float | None) -> bool:
        """Limit CPU time to a number of cores, or remove the limit (None)."""
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
        """Return the CPU seconds used by all members so far."""
        return self._seconds("cpu", "usage_usec")

    def system_seconds(self) -> float | None:
        """Return the CPU seconds that the kernel used for all members so far, in their system calls."""
        return self._seconds("cpu_system", "system_usec")

    def _seconds(self, what: str, name: str) -> float | None:
        text = self.read(what)
        if text is None:
            return None
        return field(text, name) / 1e6 if self.version == 2 else int(text) / 1e9

    def shared_memory(self) -> int | None:
        """Return the bytes of shared memory and of files in memory, which outlive their processes; None: not counted."""
        text = self.read("memory_stat")
        return None if text is None else field(text, "shmem" if self.version == 2 else "total_shmem")

    def file_memory(self) -> int | None:
        """Return the bytes of memory that hold files, also such as the kernel can drop; None: not counted."""
        text = self.read("memory_stat")
        return None if text is None else field(text, "file" if self.version == 2 else "total_cache")

    def oom_kills(self) -> int:
        """Return how many members the kernel has OOM-killed."""
        return field(self.read("memory_events") or "", "oom_kill")

    def memory_refused(self) -> int:
        """Return how often its own memory limit was reached; v2 includes the groups below, v1 does not."""
        text = self.read("memory_refused") or ""
        return field(text, "oom") if self.version == 2 else int(text or 0)

    @property
    def unenforced(self) -> bool:
        """Whether the kernel only counts memory (gVisor): no OOM kills, and an inexact process limit."""
        return "memory" in self.directories and self.read("memory_events") is None

    def pids_hits(self) -> int:
        """Return how many forks the process limit has denied; under gVisor, 1 while the limit is reached."""
        events = self.read("pids_events")
        return int(self.full()) if events is None else field(events, "max")

    def full(self) -> bool:
        """Return whether the process limit is reached, or nearly: a fork bomb's count fluctuates."""
        many = self.full_with()
        return many is not None and (self.number("pids") or 0) >= many

    def full_with(self) -> int | None:
        """Return with how many processes the group is full; None: it has no limit, or a kill sets it to 0."""
        limit = self._process_limit()
        return None if limit is None else limit - max(2, limit // 50)

    def is_fork_bomb(self, *, before: int = 0) -> bool:
        """Return whether the group has had forks denied since `before` and more than half its process limit."""
        return self.pids_hits() > before and self.holds_many()

    def holds_many(self) -> bool:
        """Return whether the group has more than half its process limit."""
        limit = self._process_limit()
        return limit is not None and 2 * (self.number("pids") or 0) > limit

    def _process_limit(self) -> int | None:
        """Return the process limit; None if there is none, also while a kill sets it to 0."""
        return self.number("pids_limit") or None

    def members(self) -> list[int]:
        """Return the pids of all members, including those in child groups that they created."""
        found: list[int] = []
        if self.directories:
            _members(self.track, found)
        return found

    def remove(self, parent: Group) -> bool:
        """Remove the group from its parent; return False while a member is left."""
        self.close()
        gone = True
        for controller, directory in parent.directories.items():
            if controller == "cpu" and self.version == 1:
                continue
            gone = remove_group(directory, self.name) and gone
        return gone

    def close(self) -> None:
        """Close all descriptors."""
        for fd in {*self._files.values(), *self._limits.values(), *self.directories.values()}:
            if fd >= 0:
                os.close(fd)
        self._files.clear()
        self._limits.clear()
        self.directories.clear()


def _members(directory: int, found: list[int]) -> None:
    try:
        found.extend(int(line) for line in read_file(directory, "cgroup.procs").split())
    except OSError as error:
        # ENODEV, ENOENT: the executor removed the group while a job kills its members.
        if error.errno not in (errno.ENODEV, errno.ENOENT, errno.EOPNOTSUPP):
            raise
    # The link count shows whether there are child groups, without a listing.
    if os.fstat(directory).st_nlink <= 2:
        return
    for entry in os.scandir(directory):
        if entry.is_dir(follow_symlinks=False):
            child = os.open(entry.name, DIRECTORY, dir_fd=directory)
            try:
                _members(child, found)
            finally:
                os.close(child)
