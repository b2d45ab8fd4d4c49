"""Ops with their processes: gives the machine's decisions to runners, pipes and timers."""

from __future__ import annotations

import asyncio
import os
import time

from .. import kernel
from . import log
from .errors import SidecarError
from .framelog import FrameLog
from .machine import ANY, ENDED, SIGKILL, Op, OpTable
from .oprun import INIT_IS_MORTAL, LIMITS_REACHED, OpRun
from .pace import Pace
from .runners import RunnerPool
from .spec import Spec
from .tasks import Tasks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..config import OpLimits
    from .executor_client import ExecutorClient
    from .runners import RunnersFailed

monotonic = time.monotonic
# Ends whose reason is the last line of stderr: a client that knows no verdicts would see an exit code and nothing else.
TOLD = frozenset(("start_failed", "timeout", "oom", "disk_full", "pids_limit"))


class Ops:
    """All ops of this instance. `busy` and `idle` tell the owner when the first begins and the last ends."""

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
        self._made_before = 0
        self.pool: RunnerPool = self._new_pool()
        self.tasks = Tasks()
        self.counts: dict[str, int] = {}
        self.on_change: Callable[[], None] = lambda: None
        self.journal: Callable[[str, str], None] | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._waiters: dict[Op, list[Callable[[Op], None]]] = {}
        # So many may be starting at a time. More of them than cores only push each other out of the caches, and let
        # some callers wait for seconds while others are served twice.
        self.abreast = 2
        self.pace = Pace()
        self._learns = (
            kernel.is_gvisor()
        )  # elsewhere what a command used does not tell whether it had to wait
        self._starting = 0

    def _replace_pool(self) -> RunnerPool:
        old, self.pool = self.pool, self._new_pool()
        self._made_before += old.made
        return old

    def _new_pool(self) -> RunnerPool:
        pool = RunnerPool(self.executor)
        pool.on_ready = self.pump
        pool.on_failed = self._no_runner
        pool.waiting = self._waiting
        return pool

    def runners_made(self) -> int:
        """How many runners were ever made."""
        return self._made_before + self.pool.made

    def _waiting(self) -> int:
        table = self.table
        room = min(self.limits.max_running - table.running, self.abreast - self._starting)
        return min(len(table.queue), room)

    def create(self, spec: Spec, *, op_id: str | None, queued_before: float = 0.0) -> tuple[Op, bool]:
        """A new op, or the one that has this id already (True). Raises ApiError."""
        table = self.table
        fingerprint = b""
        if op_id is not None:
            fingerprint = spec.fingerprint()
            op = table.find(op_id, fingerprint=fingerprint)
            if op is not None:
                return op, True
        now = monotonic()
        op = Op(
            op_id=op_id or os.urandom(12).hex(),
            chosen=op_id is not None,
            fingerprint=fingerprint or b"made here",
            spec=spec,
            now=now,
        )
        op.queued_before = queued_before
        limit = self.limits.output_limit if spec.output_limit is None else spec.output_limit
        op.log = FrameLog(limit=limit, memory=self.limits.memory_buffer, open_file=self._spill_file)
        self._enter(op)
        return op, False

    def begin_apart(self, spec: Spec, *, log: Any) -> Op:
        """An op of the sandbox itself, with a log of its own."""
        op = Op(
            op_id=os.urandom(12).hex(), chosen=False, fingerprint=b"made here", spec=spec, now=monotonic()
        )
        op.log = log
        self._enter(op)
        op.io.begin_reading()
        return op

    def restore(self, op_id: str) -> Op:
        """An op of an earlier process, queued only to be ended: any later create of this id gets its end."""
        op = Op(op_id=op_id, chosen=True, fingerprint=ANY, spec=Spec(command=""), now=monotonic())
        op.log = FrameLog(limit=0, memory=0, open_file=self._spill_file)
        op.io = OpRun(self, op)
        self.table.add(op, force=True)
        return op

    def _enter(self, op: Op) -> None:
        table = self.table
        op.io = OpRun(self, op)
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
        try:
            return os.open(self.state_dir, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError:  # gVisor has no O_TMPFILE
            path = f"{self.state_dir}/output-{os.urandom(8).hex()}"
            fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
            os.unlink(path)
            return fd

    def spilled(self) -> int:
        """Bytes of output that are on the disk; their files have no name that a walk could meet."""
        return sum(op.log.spilled for op in self.table.ops.values() if op.log is not None)

    def pump(self) -> None:
        """Start what may run."""
        table = self.table
        while table.queue and table.running < self.limits.max_running and self._starting < self.abreast:
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
        """The first word of a runner since its launch, or its loss: the next one may start."""
        self._starting -= 1
        if self.table.queue:
            self.pump()

    def _no_runner(self, error: RunnersFailed) -> None:
        cause, message = "sandbox_broken", f"no process could be made for it: {error}"
        if error.oom:
            cause, message = "oom", LIMITS_REACHED["oom"]
        for op in list(self.table.queue.values()):
            self.kill(op, cause, message=message)

    # -- who watches -----------------------------------------------------------------------------------------

    def leave(self, op: Op) -> None:
        """A watcher has gone."""
        grace = self.table.leave(op, now=monotonic())
        if grace is None:
            return
        if grace <= 0:
            self.kill(op, "client_gone", message="nobody was attached any more")
        else:
            self.loop.call_later(grace, self._look_again, op)

    def touch(self, op: Op) -> None:
        """Somebody asked about it: the grace begins anew."""
        if op.state is not ENDED and not op.attached and not op.detached:
            self.table.attach(op)
            self.leave_later(op)

    def leave_later(self, op: Op) -> None:
        """As `leave`, but with the grace also for an id that was made here (the client knows it by now)."""
        op.chosen = True
        self.leave(op)

    def _look_again(self, op: Op) -> None:
        if self.table.unattended(op, now=monotonic()):
            self.kill(op, "client_gone", message="nobody was attached any more")

    def when_ended(self, op: Op, callback: Callable[[Op], None]) -> None:
        """Call back once, at the end (now, when it has ended)."""
        if op.state is ENDED:
            callback(op)
        else:
            self._waiters.setdefault(op, []).append(callback)

    async def wait_ended(self, op: Op, *, timeout: float | None) -> bool:
        """Wait for the end; False when the time was over first."""
        if op.state is ENDED:
            return True
        ended = self.loop.create_future()

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

    # -- ends ------------------------------------------------------------------------------------------------

    def kill(self, op: Op, cause: str, *, message: str | None = None) -> None:
        """End it for a reason; its end comes when its processes are dead."""
        was_ended = op.state is ENDED
        if self.table.kill(op, cause, now=monotonic(), message=message):
            op.io.kill()
        elif not was_ended:
            self.ended(op)

    def kill_running(self, cause: str, *, message: str) -> None:
        """End all that runs, and leave what waits."""
        for op in list(self.table.ops.values()):
            if op.state is not ENDED and op.started is not None:
                self.kill(op, cause, message=message)

    def finish(self, op: Op, facts: dict[str, Any]) -> None:
        """What the runner saw (called by OpRun)."""
        if op.state is not ENDED:
            self.table.finish(op, facts=facts, now=monotonic())
            if self._learns and "cpu" in facts:
                self.pace.ended(op.cpu)
            self.ended(op)

    def ended(self, op: Op) -> None:
        """Tell everybody, let the next one run."""
        op.ended_at = time.time()
        op.io.close()
        verdict = op.verdict or ""
        self.counts[verdict] = self.counts.get(verdict, 0) + 1
        if op.chosen and self.journal is not None:
            self.journal("-", op.op_id)
        if op.verdict in TOLD and op.message:
            op.log.say(f"sandlot: {op.message}\n".encode("utf-8", "replace"))
        op.spec = None
        for callback in self._waiters.pop(op, ()):
            try:
                callback(op)
            except Exception as error:
                log.failure("op_callback_failed", error, op=op.op_id)
        op.io.changed()
        if self.table.queue:
            self.pump()
        if self._sweep is None or self.table.held - self.table.read > self.limits.result_bytes:
            self.sweep()
        if self.table.running == 0 and not self.table.queue:
            self.on_change()

    def sweep(self) -> None:
        """Drop old results; one timer for the oldest, none when nothing is kept."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        dropped, due = self.table.expire(now=monotonic())
        for op in dropped:
            op.log.close()
        if due is not None:
            self._sweep = self.loop.call_later(max(due, 0.5), self.sweep)

    async def end_all(self, cause: str, *, message: str) -> None:
        """Everything is over (the sandbox ends or is reset): no op is waited for."""
        for op in list(self.table.ops.values()):
            if op.state is not ENDED:
                if self.table.kill(op, cause, now=monotonic(), message=message):
                    op.io.drain()
                    self.table.finish(op, facts={}, now=monotonic())
                self.ended(op)
        await self.pool.close()

    def broken(self, message: str) -> None:
        """The sandbox's init was lost: what ran in it is dead, new runners are made."""
        pool = self._replace_pool()
        self.all_died(message)
        self.tasks.spawn(pool.close())
        self.pool.open()

    def all_died(self, message: str) -> None:
        """The sandbox's init has taken along all that ran in it."""
        for op in list(self.table.ops.values()):
            if op.state is not ENDED and op.started is not None:
                op.io.drain()
                if not INIT_IS_MORTAL:
                    self.table.kill(op, "sandbox_broken", now=monotonic(), message=message)
                self.table.finish(op, facts={"signal": SIGKILL} if INIT_IS_MORTAL else {}, now=monotonic())
                self.ended(op)

    def forget(self) -> None:
        """After a reset: fresh tables, fresh runners."""
        for op in self.table.forget():
            op.log.close()
        self.sweep()
        self._replace_pool()
        self.pool.open()

    async def init_alive(self) -> bool:
        """Whether the sandbox's first process lives."""
        try:
            answer, _ = await self.executor.ask("alive")
        except SidecarError:
            return False
        return bool(answer["alive"])

    def kill_runner_tree(self, pid: int) -> None:
        """Have the executor kill all that a runner has started; its end is seen by the runner."""
        self.tasks.spawn(self._kill_runner_tree(pid))

    async def _kill_runner_tree(self, pid: int) -> None:
        try:
            await self.executor.ask("kill", runner=pid)
        except SidecarError as error:
            log.failure("kill_failed", error)

    async def disk_full(self) -> str | None:
        """Whose disk is full, if any is: the `sandbox`'s own, or that of its `node`."""
        try:
            full = (await self.executor.ask("full"))[0]["full"]
            if full != "node":
                return full
            # The sandbox may be what has filled it, faster than it was measured.
            held, _ = await self.executor.ask("disk")
        except SidecarError:
            return None
        over = held["limit"] is not None and (
            held["used"] > held["limit"] or held["files"] > held["files_limit"]
        )
        return "sandbox" if over else "node"

    async def close(self) -> None:
        """Give everything back."""
        self.forget_results()
        await self.tasks.wait()
        os.close(self.devnull)

    def forget_results(self) -> None:
        """Drop every result and the timer."""
        for op in self.table.forget():
            op.log.close()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
