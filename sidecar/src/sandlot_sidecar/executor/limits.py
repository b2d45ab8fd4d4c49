"""Enforces a sandbox's limits: cpu, memory and processes with a control group, disk with the file system's size."""

from __future__ import annotations

from . import cgroups
from .errors import ExecutorError
from .memory_watch import MemoryWatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .group import Group
    from .plan import Plan
    from .root import Root

# Files in a tmpfs count as memory: the shares of a memory limit that files and shared memory may use.
DISK_SHARE = 0.6
SHM_SHARE = 0.15
_GROUPS = ("cpu", "memory", "pids")
SHM_SIZE = 64 * 1024 * 1024


class Limits:
    """The current limits and the control group that enforces them."""

    def __init__(self, values: dict[str, Any], *, plan: Plan, cgroup: cgroups.Sandbox | None) -> None:
        """`values`: the result of `validate`. Call `apply` to enforce them."""
        self.values = values
        self.cgroup = cgroup
        self.watch: MemoryWatch | None = None  # only where the kernel does not enforce memory limits (gVisor)
        self._plan = plan
        self.notes: list[str] = []  # of the last `apply`
        self._built_for: int | None = plan.disk  # bytes of disk unless a claim sets another limit

    def replace(self, values: dict[str, Any]) -> list[str]:
        """Set the limits of a claim and return notes. The current root keeps its disk size until `resize`."""
        self.values = values
        self._plan.disk = self.values.get("disk") or self._built_for
        return self.apply()

    def are_set(self, values: dict[str, Any]) -> bool:
        """Return whether these are the current limits, and all of them are enforced."""
        disk = values.get("disk") or self._built_for
        are_same = disk == self._plan.disk and all(
            values.get(each) == self.values.get(each) for each in _GROUPS
        )
        return are_same and not any(note.startswith("limits:") for note in self.notes)

    def apply(self) -> list[str]:
        """Apply the limits to the sandbox's group; return notes on those that cannot be enforced."""
        notes = []
        if self.cgroup is not None:
            notes += self.cgroup.apply(self.values)
            self._watch_memory(self.cgroup)
        else:
            if any(self.values.get(name) is not None for name in ("memory", "pids")):
                notes.append("limits: no writable cgroup, using rlimits per process")
            if self._plan.gpus is not None and self.values.get("memory") is not None:
                notes.append("limits: no writable cgroup, memory is not limited beside GPUs")
            if self.values.get("cpu") is not None:
                notes.append("limits: no writable cgroup, cpu is not limited")
            notes.append(
                "processes: no writable cgroup, an op's descendants are found by session and environment"
            )
        disk = self.disk
        asked = self._plan.disk
        store = self._plan.store
        if store is not None:
            if asked and not store.bounded:
                notes.append("disk: usage is measured while commands run")
            if asked and store.bounded and asked > store.size:
                notes.append(f"disk: the pod's volume holds {store.size} of the {asked} bytes asked for")
        elif asked and disk is not None and disk < asked:
            notes.append(
                f"disk: files are kept in memory, so {disk} of the {asked} bytes asked for can be used"
            )
        self.notes = notes
        return list(notes)

    def _watch_memory(self, cgroup: cgroups.Sandbox) -> None:
        if not cgroup.unenforced:
            return
        cores = self.values.get("cpu")
        if self.watch is None:
            self.watch = MemoryWatch(cgroup.group, cores=cores)
        self.watch.limits_changed(cores=cores, processes=cgroups.with_runners(self.values.get("pids")))

    def of_processes(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the limits that each process gets where no group enforces them."""
        # CUDA reserves more addresses than any machine has memory: with a limit of them it does not start.
        return values if self._plan.gpus is None else {**values, "memory": None}

    def usage(self) -> dict[str, Any]:
        """Return the CPU seconds, bytes of memory, and bytes of them for files; None without a group that counts them."""
        group = None if self.cgroup is None else self.cgroup.group
        return {
            "cpu": group.cpu_seconds() if group else None,
            "memory": group.number("memory") if group else None,
            "cache": group.file_memory() if group else None,
        }

    def limit_runner(self, group: Group) -> None:
        """Limit one runner's group, so that no op can use up the whole sandbox."""
        memory, pids = self.values.get("memory"), self.values.get("pids")
        # A little below the sandbox's limit, so that the OOM killer picks the op even when it runs alone. Without an OOM
        # killer, MemoryWatch picks.
        below = 0 if memory is None or self.watch is not None else memory // 50
        group.limit("memory_limit", None if memory is None else max(memory - below, 1 << 20))
        group.limit("pids_limit", None if pids is None else pids + 1)

    @property
    def disk(self) -> int | None:
        """Size in bytes of the writable layer; None: unlimited."""
        return self._disk(self.values.get("memory"), self._plan.disk)

    @property
    def shm(self) -> int:
        """Size of /dev/shm in bytes."""
        return _shm(self.values.get("memory"))

    def sizes(self, values: dict[str, Any]) -> tuple[int | None, int]:
        """Return the sizes of the writable layer and of /dev/shm under the limits of another owner."""
        memory = values.get("memory")
        return self._disk(memory, values.get("disk") or self._built_for), _shm(memory)

    def _disk(self, memory: int | None, asked: int | None) -> int | None:
        if memory is None or self.cgroup is None or self._plan.store is not None:
            return asked
        share = int(memory * DISK_SHARE)
        return share if asked is None else min(share, asked)

    def resize(self, root: Root) -> list[str]:
        """Resize the current root's writable layer; return a note if the kernel refuses."""
        disk = self.disk
        if disk is None or not self._plan.overlay or self._plan.store is not None:
            return []
        try:
            root.resize(disk)
        except OSError as error:
            return [f"disk: the size could not be changed to {disk} bytes: {error.strerror}"]
        return []

    def close(self) -> None:
        """Remove the sandbox's group; idempotent."""
        if self.cgroup is not None:
            self.cgroup.remove()
            self.cgroup = None
        if self.watch is not None:
            self.watch.close()
            self.watch = None


def _shm(memory: int | None) -> int:
    return SHM_SIZE if memory is None else min(SHM_SIZE, max(4096, int(memory * SHM_SHARE)))


def validate(limits: Any) -> dict[str, Any]:
    """Return the requested limits, as integers except cpu; raises ExecutorError unless all are positive numbers."""
    limits = dict(limits or {})
    for name in ("cpu", "memory", "pids", "disk"):
        value = limits.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise ExecutorError(
                "bad_request", f"limits.{name} must be a positive number", field=f"limits.{name}"
            )
        if name != "cpu":
            limits[name] = int(value)
    return limits
