"""Tracks who watches each op and waits for its end; kills ops that nobody watches."""

from __future__ import annotations

import asyncio
import time

from sandlot_contract.verdicts import CommandVerdict

from ..core.op import Op, State
from . import log, trace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from ..core.table import OpTable

    class Kill(Protocol):
        def __call__(self, op: Op, cause: str, *, message: str) -> None: ...


class Watchers:
    """Watchers of all ops. `kill` ends an op for a reason."""

    def __init__(self, table: OpTable, *, kill: Kill) -> None:
        self._loop = asyncio.get_running_loop()
        self._table = table
        self._kill = kill
        self._waiters: dict[Op, list[Callable[[Op], None]]] = {}

    def attach(self, op: Op) -> None:
        """Add a watcher."""
        self._table.attach(op)

    def leave(self, op: Op) -> None:
        """Remove a watcher; an op without one is killed, after a grace period if the client chose its id."""
        grace = self._table.leave(op, now=time.monotonic())
        if grace is None:
            return
        if grace <= 0:
            self._kill(op, CommandVerdict.CLIENT_GONE, message="the last client disconnected")
        else:
            self._loop.call_later(grace, self._look_again, op)

    def leave_later(self, op: Op) -> None:
        """Remove a watcher, with the grace period even for a generated id (which the client knows by now)."""
        op.chosen = True
        self.leave(op)

    def touch(self, op: Op) -> None:
        """Restart the grace period, since a client asked about the op."""
        if op.state is not State.ENDED and not op.attached and not op.detached:
            self.attach(op)
            self.leave_later(op)

    def _look_again(self, op: Op) -> None:
        if self._table.unattended(op, now=time.monotonic()):
            self._kill(op, CommandVerdict.CLIENT_GONE, message="the last client disconnected")

    def when_ended(self, op: Op, callback: Callable[[Op], None]) -> None:
        """Call back once when the op has ended, which may be now."""
        if op.state is State.ENDED:
            callback(op)
        else:
            self._waiters.setdefault(op, []).append(callback)

    async def wait_ended(self, op: Op, *, timeout: float | None) -> bool:
        """Wait for the op's end; return False on timeout."""
        if op.state is State.ENDED:
            return True
        ended = self._loop.create_future()

        def callback(_op: Op) -> None:
            if not ended.done():
                ended.set_result(None)

        self.when_ended(op, callback)
        done, _ = await asyncio.wait([ended], timeout=timeout)
        if not done:
            callbacks = self._waiters.get(op)
            if callbacks and callback in callbacks:
                callbacks.remove(callback)
        return bool(done)

    def tell_end(self, op: Op) -> None:
        """Call back those that wait for the op's end."""
        for callback in self._waiters.pop(op, ()):
            try:
                callback(op)
            except Exception as error:
                log.failure("op_callback_failed", error, op=op.op_id, **trace.ids(op.trace))
