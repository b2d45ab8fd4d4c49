"""Holds a sandbox to its disk where no filesystem does: a pod's volume is measured, and what fills it is ended."""

from __future__ import annotations

import time

from .errors import ApiError, SidecarError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio

    from .ops import Ops

FIRST, LEAST, MOST = 0.3, 1.0, 10.0  # seconds until the first look after a command began, and between two
FASTEST = 512 << 20  # bytes that may be written in a second: with much room left there is time
SHARE = 20  # looking takes this part of a core at most


def pause(*, cost: float, room: int) -> float:
    """Seconds until the next look, when one took `cost` seconds of CPU and `room` bytes were left.

    CPU, since on busy cores a look that waits for them for a second would come back after 20: so long a full disk
    would go unseen where most is written.
    """
    return max(LEAST, SHARE * cost, min(MOST, room / FASTEST))


class Disk:
    """All return at once. `measured`: by us; else a filesystem of its own bounds it, and nothing is done here."""

    def __init__(self, ops: Ops, *, measured: bool) -> None:
        self._ops = ops
        self._measured = measured
        self._used = 0
        self._limit: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._busy = False
        self._killed = False  # by the last look
        self._not_before = 0.0

    def look(self) -> None:
        """Commands run: measure as long as any does."""
        if self._measured and self._timer is None and not self._busy:
            pause = max(FIRST, self._not_before - time.monotonic())
            self._timer = self._ops.loop.call_later(pause, self._due)

    def check(self, size: int) -> None:
        """Whether so many bytes more are too many. Raises ApiError."""
        if self._limit is not None and self._used + size > self._limit:
            message = f"the sandbox's disk is full: {self._used} of {self._limit} bytes are used"
            raise ApiError(507, "disk_full", message)

    def wrote(self, size: int) -> None:
        """A file came by another way than a command."""
        self._used += size

    def emptied(self) -> None:
        """The writable layer is a fresh one."""
        self._used = 0

    def close(self) -> None:
        """Measure no more."""
        self._measured = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        self._timer = None
        self._busy = True
        self._ops.tasks.spawn(self._measure())

    async def _measure(self) -> None:
        try:
            answer, _ = await self._ops.executor.ask("disk")
        except SidecarError:
            return  # the executor is gone, and so is the sandbox; or a reset has ended the measuring
        finally:
            self._busy = False
        before, self._used, self._limit = self._used, answer["used"], answer["limit"]
        room = (self._limit or 0) - self._used
        self._not_before = time.monotonic() + pause(cost=answer["cost"], room=room)
        # What makes room again must live: only a disk that was filled further ends what runs, and what those that
        # were killed wrote until they were dead does not count.
        self._killed = self._limit is not None and self._used > max(before, self._limit) and not self._killed
        if self._killed:
            self._ops.kill_running("disk_full", message="the sandbox's disk was full")
        if self._killed or self._ops.table.running:
            self.look()
