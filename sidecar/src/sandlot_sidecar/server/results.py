"""The results of ended ops: counted by verdict, completed, and dropped once they are old or too many."""

from __future__ import annotations

import time

from ..core.verdicts import REPEATED_ON_STDERR
from . import log

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio

    from ..core.op import Op
    from ..core.table import OpTable

monotonic = time.monotonic


class Results:
    """The results that the table keeps. A timer runs while there are any."""

    def __init__(self, table: OpTable, loop: asyncio.AbstractEventLoop) -> None:
        self._table = table
        self._loop = loop
        self.counts: dict[str, int] = {}
        self._sweep: asyncio.TimerHandle | None = None

    def complete(self, op: Op) -> None:
        """Count an op that has ended, and make of it what is kept: its output with the message, its command line."""
        verdict = op.verdict or ""
        if op.trace is not None and op.trace.sampled:
            log.event("op_ended", op=op.op_id, verdict=verdict, **op.trace.ids)
        self.counts[verdict] = self.counts.get(verdict, 0) + 1
        if verdict in REPEATED_ON_STDERR and op.message:
            op.log.say(f"sandlot: {op.message}\n".encode("utf-8", "replace"))
        op.command = op.spec.line()
        op.spec = None

    def added(self) -> None:
        """Set the timer after another op has ended, or make room if results are too many."""
        if self._sweep is None or self._table.held - self._table.read > self._table.limits.result_bytes:
            self._drop_old()

    def _drop_old(self) -> None:
        """Drop old results and set a timer for the next; no timer if nothing is kept."""
        self._stop()
        dropped, due = self._table.expire(now=monotonic())
        for op in dropped:
            op.log.close()
        if due is not None:
            self._sweep = self._loop.call_later(max(due, 0.5), self._drop_old)

    def forget(self) -> None:
        """Drop all ops after a reset, or as the process ends."""
        for op in self._table.forget():
            op.log.close()
        self._stop()

    def _stop(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
