"""The owner's use of the sandbox: its start command, whether anything is under way, its deadline and idle timeout."""

from __future__ import annotations

import asyncio
import time

from ..core import ends
from ..core.op import Op, State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.ends import End
    from ..core.record import Record
    from .ops import Ops
    from .startcommand import StartCommand


class Use:
    """`end` is called where the use comes to its end by itself. No timer runs without an owner."""

    def __init__(self, ops: Ops, *, end: Callable[[End], None]) -> None:
        self.last_active = time.time()
        self.start_command: StartCommand | None = None
        self._ops = ops
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._begun = False
        self._streams = 0  # file transfers and tunnels under way
        self._idle_timeout: float | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._idle: asyncio.TimerHandle | None = None

    def begin(self, record: Record) -> None:
        """Its owner's time begins."""
        self.stop()
        self._begun = True
        self._idle_timeout = None if record.claim is None else record.claim["idle_timeout"]
        self.activity()
        deadline_at = record.deadline_at()
        if deadline_at is not None:
            pause = max(0.0, deadline_at - time.time())
            self._deadline = self._loop.call_later(pause, self._end, ends.DEADLINE)

    def run_start_command(self, record: Record) -> None:
        """Where the claim has one."""
        claim = record.claim
        if claim is not None and claim["start_command"] is not None:
            from .startcommand import StartCommand  # an idle sidecar keeps no memory for it

            self.start_command = StartCommand(self._ops, claim["start_command"])
            if claim["meta"].get("main"):
                self._ops.watchers.when_ended(self.start_command.op, self._main_ended)

    def _main_ended(self, op: Op) -> None:
        if self._begun:  # else it was ended with all others
            self._end(ends.main_ended(op.exit_code))

    def under_way(self) -> bool:
        """Anything of the owner's is; the start command is the sandbox's own."""
        table, start = self._ops.table, self.start_command
        own = 1 if start is not None and start.op.state is not State.ENDED else 0
        return table.running + len(table.queue) - own > 0 or self._streams > 0

    def stream_begins(self) -> None:
        """A file transfer or a tunnel."""
        self._streams += 1

    def stream_ends(self) -> None:
        self._streams -= 1
        self.activity()

    def activity(self) -> None:
        """Something began or ended: idleness counts from here (not while anything is under way)."""
        self.last_active = time.time()
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._idle_timeout is not None and not self.under_way():
            self._idle = self._loop.call_later(self._idle_timeout, self._idle_reached)

    def _idle_reached(self) -> None:
        self._idle = None
        if not self.under_way():
            self._end(ends.IDLE)

    def stop(self) -> None:
        """It is over."""
        for timer in (self._deadline, self._idle):
            if timer is not None:
                timer.cancel()
        self._deadline = self._idle = self._idle_timeout = None
        self._begun = False

    def forget(self) -> None:
        """After a reset nothing has ever run here."""
        self.start_command = None
