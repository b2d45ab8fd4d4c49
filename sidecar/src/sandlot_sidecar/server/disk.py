"""Enforces a sandbox's disk limit where the kernel does not, by measuring its use and killing what fills it."""

from __future__ import annotations

import time

from sandlot_contract.verdicts import CommandVerdict

from ..core.errors import ApiError, SidecarError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from typing import Any

    from ..core.op import Op
    from .ops import Ops

FIRST, LEAST, MOST = (
    0.3,
    1.0,
    10.0,
)  # seconds before the first measurement after a command began, and between two
FASTEST = (
    512 << 20
)  # bytes per second that may be written: with much room left, the next measurement can wait
FASTEST_FILES = 200_000  # files per second that may be created: each takes memory of a pod's gVisor kernel
SOONEST = 0.1
SHARE = 20  # measuring takes at most this fraction (1/20) of a core
SHARE_ABOVE = 4  # the same above the limit: what is counted there grows with each pause


def pause(*, cost: float, room: int, files: int) -> float:
    """Return the seconds until the next measurement, from the cost of the last one and the bytes and files left.

    `cost` is in seconds of CPU: in wall time, a measurement that waited a second for busy cores would delay the next
    one by 20, during which a full disk went unnoticed where most is written.
    """
    by_bytes = max(LEAST, min(MOST, room / FASTEST))
    by_files = max(SOONEST, files / FASTEST_FILES)
    share = SHARE if min(room, files) >= 0 else SHARE_ABOVE
    return max(share * cost, min(by_bytes, by_files))


class Disk:
    """Tracks disk use; no method blocks. `measured`: False where a file system of its own bounds the sandbox."""

    def __init__(self, ops: Ops, *, measured: bool) -> None:
        self._ops = ops
        self._measured = measured
        self._used = self._files = 0
        self._spilled = 0  # bytes of spilled output, which no measurement finds
        self._limit: int | None = None
        self._files_limit = 0
        self._counted: list[int] | None = None  # where the next measurement resumes
        self._timer: asyncio.TimerHandle | None = None
        self._busy = False
        self._killed: list[Op] | None = None  # by the last measurement
        self._not_before = 0.0

    def look(self) -> None:
        """Schedule measurements for as long as commands run."""
        if self._measured and self._timer is None and not self._busy:
            pause = SOONEST if self._killed is not None else max(FIRST, self._not_before - time.monotonic())
            self._timer = self._ops.loop.call_later(pause, self._due)

    @property
    def used(self) -> int:
        """Bytes by the last measurement, and those written since other than by commands."""
        return self._used + self._spilled

    def check(self, size: int) -> None:
        """Check that this many more bytes fit. Raises ApiError."""
        used = self._used + self._ops.spilled()
        if self._limit is not None and used + size > self._limit:
            message = f"the sandbox's disk is full ({used} of {self._limit} bytes): remove files"
            raise ApiError(507, "disk_full", message)

    def wrote(self, size: int) -> None:
        """Count a file that was written other than by a command."""
        self._used += size

    def emptied(self) -> None:
        """Forget all measurements: the writable layer is fresh, and its limit may be another."""
        self._stop()
        self._used = self._files = self._spilled = self._files_limit = 0
        self._limit = self._counted = None
        self._killed = None
        self._not_before = 0.0

    def close(self) -> None:
        """Stop measuring."""
        self._measured = False
        self._stop()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        self._timer = None
        # The measurement after a kill says where the next command begins: at once, but not before the killed have ended,
        # or the next command would die of their files.
        if time.monotonic() < self._not_before and any(op.finished is None for op in self._killed or ()):
            self.look()
            return
        self._busy = True
        self._ops.tasks.spawn(self._measure())

    async def _measure(self) -> None:
        try:
            grows = self._killed is not None or self._files > self._files_limit
            answer, _ = await self._ops.executor.ask("disk", counted=self._counted, grows=grows)
        except SidecarError:
            return  # the executor and the sandbox are gone, or a reset stopped the measurements
        finally:
            self._busy = False
        if answer["limit"] is None:
            self._not_before = time.monotonic() + MOST
        else:
            self._judge(answer)
        if self._killed is not None or self._ops.table.running:
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
        # Commands that free space must survive: only a disk that grew further kills what runs, and what killed commands
        # wrote before they died does not count.
        full = used > max(before, limit)
        kill = (full or self._files > max(files_before, most)) and self._killed is None
        self._killed = None
        if kill:
            text = "the sandbox's disk was full" if full else f"the sandbox held {most} files, its limit"
            self._killed = self._ops.kill_running(CommandVerdict.DISK_FULL, message=text)
            self._not_before = time.monotonic() + MOST  # as long as their ends are awaited
