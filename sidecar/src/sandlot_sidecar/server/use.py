"""The owner's use of the sandbox: start command, activity, deadline and idle timeout."""

from __future__ import annotations

import asyncio
import time

from ..core import ends
from ..core.op import Op, State
from .ahead import Ahead

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.ends import End
    from ..core.record import Record
    from .ops import Ops
    from .sandbox import Sandbox
    from .startcommand import StartCommand


class Use:
    """Calls `end` when the deadline, idle timeout or start command ends the sandbox. Without an owner no timer runs."""

    def __init__(self, ops: Ops, *, end: Callable[[End], None], sandbox: Sandbox) -> None:
        self.ahead = Ahead(sandbox, idle=self._idle_seconds)
        self.last_active = time.time()
        self.start_command: StartCommand | None = None
        self._ops = ops
        self._end = end
        self._loop = asyncio.get_running_loop()
        self.datagrams_dropped = 0
        self.stops = 0  # one more after each reset, or end
        self.cut_at_stop: set[Callable[[], None]] = set()  # cut what a reset must not leave connected
        self._begun = False
        self._streams = 0  # active file transfers and tunnels
        self._idle_timeout: float | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._idle: asyncio.TimerHandle | None = None

    def begin(self, record: Record) -> None:
        """Start the owner's deadline and idle timeout."""
        self.stop()
        self._begun = True
        self._idle_timeout = None if record.claim is None else record.claim["idle_timeout"]
        self.activity()
        self.ahead.begin(record)
        self.arm_deadline(record)

    def arm_deadline(self, record: Record) -> None:
        """Start the timer of the record's deadline, in place of an earlier one."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        deadline_at = record.deadline_at()
        if deadline_at is not None:
            pause = max(0.0, deadline_at - time.time())
            self._deadline = self._loop.call_later(pause, self._end, ends.DEADLINE)

    def run_start_command(self, record: Record) -> None:
        """Run the claim's start command, if it has one."""
        claim = record.claim
        if claim is not None and claim["start_command"] is not None:
            from .startcommand import StartCommand  # imported on first use: an idle sidecar saves its memory

            self.start_command = StartCommand(self._ops, claim)
            self.activity()  # its own start counted as an op of the owner
            if claim["meta"].get("main"):
                self._ops.watchers.when_ended(self.start_command.op, self._main_ended)

    def _main_ended(self, op: Op) -> None:
        if self._begun:  # otherwise it ended with all other ops
            self._end(ends.main_ended(op.exit_code))

    def under_way(self) -> bool:
        """Return whether the owner has ops or streams in progress, not counting the start command."""
        table, start = self._ops.table, self.start_command
        own = 1 if start is not None and start.op.state is not State.ENDED else 0
        return table.running + len(table.queue) - own > 0 or self._streams > 0

    def _idle_seconds(self) -> float:
        return 0.0 if self.under_way() else time.time() - self.last_active

    def stream_begins(self) -> None:
        """Count a file transfer or tunnel as use."""
        self._streams += 1

    def stream_ends(self) -> None:
        self._streams -= 1
        self.activity()

    def activity(self) -> None:
        """Restart the idle timeout after an op or stream began or ended (it does not run while any is in progress)."""
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
        """Stop all timers, and cut what must not outlast a reset."""
        self.stops += 1
        for cut in list(self.cut_at_stop):
            cut()
        self.ahead.stop()
        for timer in (self._deadline, self._idle):
            if timer is not None:
                timer.cancel()
        self._deadline = self._idle = self._idle_timeout = None
        self._begun = False

    def begin_stop(self, cause: str, *, message: str) -> bool:
        """Begin to stop the start command, and kill all other ops; return False if there is none to stop."""
        start = self.start_command
        if start is None or not start.begin_stop():
            return False
        self._ops.kill_others(start.op, cause, message=message)
        return True

    async def stopped(self) -> None:
        """Wait until the start command has ended, for its grace at most."""
        if self.start_command is not None:
            await self.start_command.stopped()

    def end_grace(self) -> None:
        """Wait no longer for a start command that is being stopped."""
        if self.start_command is not None:
            self.start_command.end_grace()

    def forget(self) -> None:
        """Forget the start command after a reset."""
        self.start_command = None
