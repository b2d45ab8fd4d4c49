"""Drives the state machines of all ops: reports events to them and carries out the actions."""

from __future__ import annotations

import asyncio
import os
import time

from sandlot_contract.verdicts import CommandVerdict

from .. import kernel
from ..core.op import ANY, Action, Op
from ..core.table import OpTable
from ..core.verdicts import LIMITS_REACHED
from . import log, trace
from .diagnosis import OpDiagnosis
from .framelog import FrameLog, spill_file
from .oprun import OpRun
from .pace import Pace
from .pending_ends import PendingEnds
from .results import Results
from .runners import RunnerPool
from .spec import Spec
from .tasks import Tasks
from .watchers import Watchers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..core.limits import OpLimits
    from .executor_client import ExecutorClient
    from .runners import Made, RunnersFailed
    from .trace import Trace

monotonic = time.monotonic


class Ops:
    """All ops of this instance. `on_change` is called when the first begins and the last ends."""

    def __init__(self, *, executor: ExecutorClient, limits: OpLimits, state_dir: str) -> None:
        self.loop = asyncio.get_running_loop()
        self.limits = limits
        self.executor = executor
        self.table = OpTable(limits=limits)
        self.state_dir = state_dir
        self.environment: dict[str, str] = {}
        self.workdir: str | None = None
        self.user: str | int | None = None
        self.devnull = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self.reasons = OpDiagnosis(executor)
        self._made_before = 0
        self.pool: RunnerPool = self._new_pool()
        self.tasks = Tasks()
        self.results = Results(self.table, self.loop)
        self._pending_ends = PendingEnds(self.loop, reasons=self.reasons, tasks=self.tasks, move=self.move)
        self.watchers = Watchers(self.table, kill=self.kill)
        self.impossible = 0  # events that cannot happen in their op's state
        self.on_change: Callable[[], None] = lambda: None
        self.journal: Callable[[str, str], None] | None = None
        # Limit on ops that are starting. More of them than cores evict each other from the caches, and let some callers
        # wait for seconds while others are served twice.
        self.max_starting = 2
        self.pace = Pace()
        # Elsewhere a command's CPU time does not show whether it had to wait.
        self._learns = kernel.is_gvisor()
        self._starting = 0

    def _replace_pool(self) -> RunnerPool:
        old, self.pool = self.pool, self._new_pool()
        old.pause()
        self._made_before += old.made
        return old

    def _new_pool(self) -> RunnerPool:
        pool = RunnerPool(self.executor, self.reasons)
        pool.on_ready = self.pump
        pool.on_failed = self._no_runner
        pool.waiting = self._waiting
        return pool

    def runners_made(self) -> int:
        """Return how many runners were ever started."""
        return self._made_before + self.pool.made

    def spilled(self) -> int:
        """Return the bytes of output on disk; their files are unlinked, so no walk finds them."""
        return sum(op.log.spilled for op in self.table.ops.values() if op.log is not None)

    # -- start -----------------------------------------------------------------------------------------------

    def create(
        self, spec: Spec, *, op_id: str | None, queued_before: float = 0.0, traced: Trace | None = None
    ) -> tuple[Op, bool]:
        """Return a new op, or the existing one with this id (True). Raises ApiError."""
        fingerprint = b"made here"
        if op_id is not None:
            fingerprint = spec.fingerprint()
            op = self.table.find(op_id, fingerprint=fingerprint)
            if op is not None:
                return op, True
        limit = self.limits.output_limit if spec.output_limit is None else spec.output_limit
        log = FrameLog(limit=limit, memory=self.limits.memory_buffer, open_file=self._spill_file)
        op = self._new(spec, op_id=op_id, fingerprint=fingerprint, log=log)
        op.queued_before = queued_before
        op.trace = traced
        self._enter(op)
        return op, False

    def begin_apart(self, spec: Spec, *, log: Any) -> Op:
        """Create an op of the sandbox's own, such as the start command, with a log of its own."""
        op = self._new(spec, op_id=None, fingerprint=b"made here", log=log)
        self._enter(op)
        op.io.begin_reading()
        return op

    def restore(self, lost: list[str], over: list[str]) -> None:
        """Restore ids from before a restart: `over` had ended; a later create of a `lost` one gets `sidecar_lost`."""
        for op_id in over:
            self.table.remember(op_id)
        for op_id in lost:
            log = FrameLog(limit=0, memory=0, open_file=self._spill_file)
            op = self._new(Spec(command=""), op_id=op_id, fingerprint=ANY, log=log)
            self.table.add(op, force=True)
            self.kill(op, "sidecar_lost", message="the sidecar restarted and missed the end of the op")

    def _new(self, spec: Spec, *, op_id: str | None, fingerprint: bytes, log: Any) -> Op:
        op = Op(
            op_id=op_id or os.urandom(12).hex(),
            chosen=op_id is not None,
            fingerprint=fingerprint,
            spec=spec,
            now=monotonic(),
        )
        op.log = log
        op.io = OpRun(self, op)
        return op

    def _enter(self, op: Op) -> None:
        table = self.table
        try:
            table.add(op)
        except Exception:
            op.io.close()
            raise
        if op.chosen and self.journal is not None:
            self.journal("+", op.op_id)
        self.pump()
        if table.running + len(table.queue) == 1:
            self.on_change()

    def _spill_file(self) -> int:
        return spill_file(self.state_dir)

    # -- scheduling ------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Start queued ops for which there is room."""
        table = self.table
        while table.queue and table.running < self.limits.max_running and self._starting < self.max_starting:
            runner = self.pool.take()
            if runner is None:
                self.pool.want()
                return
            op = table.next(now=monotonic())
            if op is None:
                self.pool.give_back(runner, clean=True)
                return
            self._starting += 1
            op.io.launch(runner)

    def has_started(self) -> None:
        """Count a runner's first report after a launch, or its loss: the next op may start."""
        self._starting -= 1
        if self.table.queue:
            self.pump()

    def _waiting(self) -> int:
        room = min(self.limits.max_running - self.table.running, self.max_starting - self._starting)
        return min(len(self.table.queue), room)

    def _no_runner(self, error: RunnersFailed) -> None:
        cause, message = CommandVerdict.SANDBOX_BROKEN, f"could not start a runner for the command: {error}"
        if error.oom:
            cause, message = CommandVerdict.OOM, LIMITS_REACHED[CommandVerdict.OOM]
        for op in list(self.table.queue.values()):
            self.kill(op, cause, message=message)

    # -- ends ------------------------------------------------------------------------------------------------

    def move(self, op: Op, do: Action) -> None:
        """Carry out the action that an event returned."""
        if do is Action.END:
            self._ended(op)
        elif do is Action.TELL_START:
            op.io.tell_start()
        elif do is Action.KILL:
            op.io.kill()
        elif do is Action.ASK:
            self._pending_ends.explain(op)
        elif do is Action.AWAIT:
            self._pending_ends.expect(op)
        elif do is Action.IMPOSSIBLE:
            self.impossible += 1
            fields = {"op": op.op_id, "state": op.state.name, "event": op.impossible}
            log.event("impossible", **fields, **trace.ids(op.trace))

    def kill(self, op: Op, cause: str, *, message: str | None = None) -> None:
        """End an op for a reason; it has ended once its processes are dead."""
        self.move(op, op.kill(cause, message=message, now=monotonic()))

    def kill_running(self, cause: str, *, message: str) -> list[Op]:
        """Kill all running ops and return them; queued ones stay."""
        running = [op for op in self.table.ops.values() if op.started is not None and op.finished is None]
        for op in running:
            self.kill(op, cause, message=message)
        return running

    def kill_runner_tree(self, pid: int) -> asyncio.Task[bool]:
        """Have the executor kill everything that a runner started; the result as that of `kill_tree`."""
        return self.tasks.spawn(self.reasons.kill_tree(pid))

    def kill_others(self, but: Op, cause: str, *, message: str) -> None:
        """Kill all ops but one, and start no other: the sandbox ends, or is reset, with that one."""
        self.pool.pause()
        for op in [op for op in self.table.ops.values() if op is not but]:
            self.kill(op, cause, message=message)

    async def end_all(self, cause: str, *, message: str) -> None:
        """End all ops without waiting for their processes, and close the runners: the sandbox ends or is reset."""
        self.abandon_all(cause, message=message)
        await self.pool.close()

    def abandon_all(self, cause: str, *, message: str) -> None:
        """End all ops without waiting for their processes."""
        self.pool.pause()  # otherwise each end would let a queued op start
        for op in list(self.table.ops.values()):
            op.io.drain()
            self.move(op, op.abandon(cause, message=message, now=monotonic()))

    def init_died(self, message: str) -> None:
        """End all ops that the sandbox's init took down."""
        for op in list(self.table.ops.values()):
            op.io.drain()
            self.move(op, op.init_lost(message, mortal=kernel.init_is_mortal(), now=monotonic()))

    def broken(self, message: str) -> None:
        """Handle the loss of the sandbox's init: what ran is dead, and runners are restarted."""
        pool = self._replace_pool()
        self.init_died(message)
        self.tasks.spawn(pool.close())
        self.pool.open()

    def _ended(self, op: Op) -> None:
        """Notify everyone of an op's end and start the next one."""
        table = self.table
        table.settle(op)
        if self._learns and op.exit_code is not None:
            self.pace.ended(op.cpu)
        op.ended_at = time.time()
        op.io.close()
        if op.chosen and self.journal is not None:
            self.journal("-", op.op_id)
        self.results.complete(op)
        self.watchers.tell_end(op)
        op.io.changed()
        if table.queue:
            self.pump()
        self.results.added()
        if table.running == 0 and not table.queue:
            self.on_change()

    # -- reset and exit --------------------------------------------------------------------------------------

    def forget(self, made: Made | None, *, ready: bool) -> None:
        """Clear ops and runners after a reset; one runner may be `made` already. `ready`: the next claim needs no other."""
        self.results.forget()
        self._replace_pool()
        if made is not None or not ready:
            self.pool.open(made)

    async def close(self) -> None:
        """Release everything."""
        self.results.forget()
        await self.tasks.wait()
        os.close(self.devnull)
