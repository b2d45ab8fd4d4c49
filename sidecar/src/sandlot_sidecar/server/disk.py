"""Holds a sandbox to its disk where no kernel does: what it holds is looked at, and what fills it is ended."""

from __future__ import annotations

import time

from sandlot_contract.verdicts import CommandVerdict

from ..core.errors import ApiError, SidecarError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from typing import Any

    from .ops import Ops

FIRST, LEAST, MOST = 0.3, 1.0, 10.0  # seconds until the first look after a command began, and between two
FASTEST = 512 << 20  # bytes that may be written in a second: with much room left there is time
FASTEST_FILES = 200_000  # and files that may be made: each takes memory of a pod's kernel under gVisor
SOONEST = 0.1
SHARE = 20  # looking takes this part of a core at most


def pause(*, cost: float, room: int, files: int) -> float:
    """Seconds until the next look, when one took `cost` seconds of CPU and so many bytes and `files` had room left.

    CPU, since on busy cores a look that waits for them for a second would come back after 20: so long a full disk
    would go unseen where most is written.
    """
    by_bytes = max(LEAST, min(MOST, room / FASTEST))
    by_files = max(SOONEST, files / FASTEST_FILES)
    return max(SHARE * cost, min(by_bytes, by_files))


class Disk:
    """All return at once. `measured`: by us; else a filesystem of its own bounds it, and nothing is done here."""

    def __init__(self, ops: Ops, *, measured: bool) -> None:
        self._ops = ops
        self._measured = measured
        self._used = self._files = 0
        self._spilled = 0  # bytes of kept output, which no walk meets
        self._limit: int | None = None
        self._files_limit = 0
        self._counted: list[int] | None = None  # lets the next look begin where the last one ended
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
        used = self._used + self._ops.spilled()
        if self._limit is not None and used + size > self._limit:
            message = f"the sandbox's disk is full: {used} of {self._limit} bytes are used"
            raise ApiError(507, "disk_full", message)

    def wrote(self, size: int) -> None:
        """A file came by another way than a command."""
        self._used += size

    def emptied(self) -> None:
        """The writable layer is a fresh one."""
        self._used = self._files = 0
        self._counted = None

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
            grows = self._killed or self._files > self._files_limit
            answer, _ = await self._ops.executor.ask("disk", counted=self._counted, grows=grows)
        except SidecarError:
            return  # the executor is gone, and so is the sandbox; or a reset has ended the measuring
        finally:
            self._busy = False
        if answer["limit"] is None:
            self._not_before = time.monotonic() + MOST
        else:
            self._judge(answer)
        if self._killed or self._ops.table.running:
            self.look()

    def _judge(self, answer: dict[str, Any]) -> None:
        before, files_before = self._used + self._spilled, self._files
        self._used, self._files, self._counted = answer["used"], answer["files"], answer["counted"]
        self._spilled = self._ops.spilled()
        used = self._used + self._spilled
        limit, most = answer["limit"], answer["files_limit"]
        self._files_limit = most
        self._limit = None if answer["hard"] else limit
        soon = pause(cost=answer.get("cost", 0.0), room=limit - used, files=most - self._files)
        self._not_before = time.monotonic() + soon
        # What makes room again must live: only a disk that was filled further ends what runs, and what those that
        # were killed wrote until they were dead does not count.
        full = used > max(before, limit)
        self._killed = (full or self._files > max(files_before, most)) and not self._killed
        if self._killed:
            text = "the sandbox's disk was full" if full else f"the sandbox held {most} files, its limit"
            self._ops.kill_running(CommandVerdict.DISK_FULL, message=text)
