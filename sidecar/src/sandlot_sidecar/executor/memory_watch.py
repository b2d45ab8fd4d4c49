"""Watches a sandbox's memory where the kernel holds no group to its limit (gVisor): when to look, and what is too much.

A look has to come before code can fill what the pod has above the sandbox's limit: the less is left, the sooner the
next one. While all that the kernel holds is less than any limit, a look is one system call. Of the runners that are
busy one looks for all: who looks writes into a shared page when the next look is due, and who finds it late takes over.
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
FASTEST = 3 << 30
# What a pod has at least above its sandbox's limit, for what comes between a look and the end of who takes too much.
MARGIN = 128 << 20
# Seconds between two looks.
LONGEST, SHORTEST = 0.05, 0.004
# gVisor gives pages back a moment after their process has died, and counts them until then.
SETTLES_WITHIN = 10.0
STILL = 0.5  # what has not become less for so long is held by something else than processes
FEW = 32 << 20  # bytes that are not worth waiting for
# The shared page, in steps of eight bytes: when the next look is due, bytes a second, then the marks.
_DUE, _RATE, _MARKS, _VICTIMS = 0, 1, 2, 64
_MEMORY = ("memory", "memory_limit")


class MemoryWatch:
    """Of one sandbox: made before its runners are forked, and shared by them. `cores`: None for all of the machine's."""

    def __init__(self, sandbox: Group, *, cores: float | None) -> None:
        self._sandbox = sandbox
        self._page = mmap.mmap(-1, mmap.PAGESIZE)
        # Views, which write eight bytes at once: `struct` clears them first, and who reads just then finds a rate of 0.
        self._times = memoryview(self._page).cast("d")
        self._marks = memoryview(self._page).cast("q")
        self.set_cores(cores)
        self.doorbell, self._bell = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.descriptors = [self._bell, *(fd for fd in map(sandbox.descriptor, _MEMORY) if fd >= 0)]

    def close(self) -> None:
        """The sandbox's group is its owner's to close."""
        self._times.release()
        self._marks.release()
        self._page.close()
        os.close(self.doorbell)
        os.close(self._bell)

    def set_cores(self, cores: float | None) -> None:
        """So many can fill memory at the same time."""
        self._times[_RATE] = FASTEST * max(1.0, cores or os.cpu_count() or 1)
        self._times[_DUE] = 0.0

    # When to look.

    def first(self) -> float:
        """When a process that begins to watch now looks for the first time."""
        return time.monotonic() + LONGEST

    def look(self, group: Group | None) -> tuple[float, bool]:
        """When this process is to look again, and whether `group`, the largest, has to end.

        Where another group is the largest, the executor is told.
        """
        now = time.monotonic()
        if self._times[_DUE] > now:
            return now + LONGEST, False  # another looks
        left, ends = self._left(group)
        due = now + min(LONGEST, max(SHORTEST, (left + MARGIN) / self._times[_RATE]))
        self._times[_DUE] = due
        return due, ends

    def _left(self, group: Group | None) -> tuple[int, bool]:
        """Bytes until a limit is reached, and whether `group` has to end."""
        limit = self._sandbox.number("memory_limit")
        own_limit = group.number("memory_limit") if group is not None else None
        limits = [each for each in (limit, own_limit) if each is not None]
        if not limits:
            return 1 << 62, False
        free = min(limits) - syscalls.memory_in_use()
        if free > 0:
            return free, False
        own = (group.number("memory") or 0) if group is not None else 0
        if own_limit is not None and own > own_limit:
            return 0, True
        held = self._sandbox.number("memory") or 0
        if limit is not None and held > limit:
            if 2 * own > held:
                return 0, True
            self._ring()
            return 0, False
        lefts = [own_limit - own] if own_limit is not None else []
        return min([*lefts, limit - held] if limit is not None else lefts), False

    def _ring(self) -> None:
        try:
            os.write(self._bell, b"!")
        except BlockingIOError:
            return  # it is ringing

    def stop_ringing(self) -> None:
        """For the executor, before it looks."""
        try:
            os.read(self.doorbell, 4096)
        except BlockingIOError:
            return

    # What happens to who takes too much.

    def excess(self, *, without: int = 0) -> bool:
        """Whether the sandbox holds more than its limit, `without` so many bytes."""
        held, limit = (self._sandbox.number(what) for what in _MEMORY)
        return held is not None and limit is not None and held - without > limit

    def settle(self, group: Group) -> None:
        """Wait until the memory of a group whose processes are dead is given back; not while others take too much."""
        begun = changed = time.monotonic()
        least = held = group.number("memory") or 0
        while held > FEW and not self.excess(without=held):
            time.sleep(0.002)
            now, held = time.monotonic(), group.number("memory") or 0
            if held < least:
                least, changed = held, now
            if now - changed > STILL or now - begun > SETTLES_WITHIN:
                return

    def mark(self, number: int) -> None:
        """The executor ends the op of this runner for the sandbox's memory."""
        self._marks[_MARKS + number % _VICTIMS] = number

    def take_mark(self, number: int) -> bool:
        """Whether it did, since the last time this was asked."""
        place = _MARKS + number % _VICTIMS
        marked = self._marks[place] == number
        if marked:
            self._marks[place] = 0
        return marked
