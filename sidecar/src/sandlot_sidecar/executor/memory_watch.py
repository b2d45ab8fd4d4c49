"""Polls a sandbox's memory usage where the kernel does not enforce cgroup limits (gVisor).

A check must come before code can fill the pod's memory above the sandbox's limit: the less is left, the shorter the
interval. While the whole kernel uses less than any limit, a check is one system call: a fork bomb delays each by a tenth
of a second, while memory fills. One busy runner checks for all: it writes the time of the next check into a shared page,
and any runner that finds that time past takes over.
"""

from __future__ import annotations

import mmap
import os
import time

from . import syscalls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .group import Group

# Bytes a second that one core can make resident.
MAX_FILL_RATE = 3 << 30
# A pod's minimum memory above its sandbox's limit, allocated between a check and the kill.
MARGIN = 128 << 20
# Seconds between two checks.
MAX_INTERVAL, MIN_INTERVAL = 0.05, 0.004
# Seconds. gVisor frees, and uncharges, a process's pages some time after its exit.
SETTLE_TIMEOUT = 10.0
SETTLE_IDLE = 0.5  # usage unchanged for this long is not held by processes
NEGLIGIBLE = 32 << 20  # bytes; not worth waiting for
# The shared page, in units of eight bytes: time of the next check, bytes per second, the most processes, those that the
# last check found, then the marks.
_DUE, _RATE, _PROCESSES, _FOUND, _MARKS, _MARK_COUNT = 0, 1, 2, 3, 4, 64
_MEMORY = ("memory", "memory_limit")


class MemoryWatch:
    """The memory watch of one sandbox, shared with its forked runners. `cores`: None for all of the host's."""

    def __init__(self, sandbox: Group, *, cores: float | None) -> None:
        self._sandbox = sandbox
        self._page = mmap.mmap(-1, mmap.PAGESIZE)
        # Memoryviews write eight bytes at once: `struct` clears them first, and a concurrent reader would read 0.
        self._times = memoryview(self._page).cast("d")
        self._marks = memoryview(self._page).cast("q")
        self._limits: tuple[int | None, int | None] | None = None  # the sandbox's and the op's; None: unread
        self.limits_changed(cores=cores)
        self.alarm_fd, self._alarm_write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.descriptors = [self._alarm_write_fd, *(fd for fd in map(sandbox.descriptor, _MEMORY) if fd >= 0)]

    def close(self) -> None:
        """Close the page and the alarm, but not the sandbox's group."""
        self._times.release()
        self._marks.release()
        self._page.close()
        os.close(self.alarm_fd)
        os.close(self._alarm_write_fd)

    def limits_changed(self, *, cores: float | None, processes: int | None = None) -> None:
        """Note the sandbox's new limits. `cores`: that can fill memory at the same time. `processes`: of one user."""
        self._times[_RATE] = MAX_FILL_RATE * max(1.0, cores or os.cpu_count() or 1)
        self._times[_DUE] = 0.0
        self._marks[_PROCESSES] = processes or 0
        self._limits = None

    @property
    def process_limit(self) -> int | None:
        """The most processes that one user can have, the sidecar's included; None: any number."""
        return self._marks[_PROCESSES] or None

    def is_full(self) -> bool:
        """Return whether the pod has as many processes as one user can have, or nearly, by the last check."""
        limit = self.process_limit
        return limit is not None and self.found >= limit - max(2, limit // 50)

    @property
    def found(self) -> int:
        """The processes in the pod by the last check, also of another runner."""
        return self._marks[_FOUND]

    # When to check.

    def first_check(self) -> float:
        """Return the time of the first check of a process that starts to watch an op now."""
        self._limits = None
        return time.monotonic() + MAX_INTERVAL

    def check(self, group: Group | None) -> tuple[float, bool]:
        """Return the time of this process's next check, and whether `group` must be killed.

        If the sandbox is over its limit and `group` does not hold most of it, alert the executor.
        """
        now = time.monotonic()
        if self._times[_DUE] > now:
            return now + MAX_INTERVAL, False  # another process checks
        left, ends = self._left(group)
        due = now + min(MAX_INTERVAL, max(MIN_INTERVAL, (left + MARGIN) / self._times[_RATE]))
        self._times[_DUE] = due
        return due, ends

    def _left(self, group: Group | None) -> tuple[int, bool]:
        """Return the bytes left below a limit, and whether `group` must be killed."""
        in_use, self._marks[_FOUND] = syscalls.in_use()
        if self._limits is None:
            own_limit = group.number("memory_limit") if group is not None else None
            self._limits = self._sandbox.number("memory_limit"), own_limit
        limit, own_limit = self._limits
        limits = [each for each in self._limits if each is not None]
        if not limits:
            return 1 << 62, False
        free = min(limits) - in_use
        if free > 0:
            return free, False
        own = (group.number("memory") or 0) if group is not None else 0
        if own_limit is not None and own > own_limit:
            return 0, True
        held = self._sandbox.number("memory") or 0
        if limit is not None and held > limit:
            if 2 * own > held:
                return 0, True
            self._raise_alarm()
            return 0, False
        lefts = [own_limit - own] if own_limit is not None else []
        return min([*lefts, limit - held] if limit is not None else lefts), False

    def _raise_alarm(self) -> None:
        try:
            os.write(self._alarm_write_fd, b"!")
        except BlockingIOError:
            return  # the alarm is already raised

    def clear_alarm(self) -> None:
        """Clear the alarm; the executor calls this before it checks."""
        try:
            os.read(self.alarm_fd, 4096)
        except BlockingIOError:
            return

    # What exceeds a limit.

    def excess(self, *, without: int = 0) -> bool:
        """Return whether the sandbox exceeds its limit, not counting `without` bytes."""
        held, limit = (self._sandbox.number(what) for what in _MEMORY)
        return held is not None and limit is not None and held - without > limit

    def settle(self, group: Group) -> None:
        """Wait until a killed group's memory is freed, unless other groups exceed the sandbox's limit."""
        begun = changed = time.monotonic()
        least = held = group.number("memory") or 0
        while held > NEGLIGIBLE and not self.excess(without=held):
            time.sleep(0.002)
            now, held = time.monotonic(), group.number("memory") or 0
            if held < least:
                least, changed = held, now
            if now - changed > SETTLE_IDLE or now - begun > SETTLE_TIMEOUT:
                return

    def mark(self, number: int) -> None:
        """Record that the executor kills this runner's op because of the sandbox's memory limit."""
        self._marks[_MARKS + number % _MARK_COUNT] = number

    def take_mark(self, number: int) -> bool:
        """Return whether a mark was recorded since the last call, and clear it."""
        place = _MARKS + number % _MARK_COUNT
        marked = self._marks[place] == number
        if marked:
            self._marks[place] = 0
        return marked
