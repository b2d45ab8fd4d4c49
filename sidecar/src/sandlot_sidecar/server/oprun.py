"""One op on a runner: messages to and from the runner, and timers; released when the op ends."""

from __future__ import annotations

import os
import time

from sandlot_contract.frames import START
from sandlot_contract.verdicts import CommandVerdict

from ..core.op import Action, State, Stdin
from . import command
from .op_signals import OpSignals
from .output import OpOutput
from .spec import QUIET

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from typing import Any, Protocol

    from ..core.op import Op
    from .pace import Pace
    from .runners import Runner, RunnerPool
    from .stdin import OpInput

    class Ops(command.Defaults, Protocol):
        """The parts of `Ops` that an op uses."""

        loop: asyncio.AbstractEventLoop
        pool: RunnerPool
        pace: Pace
        devnull: int

        def has_started(self) -> None: ...

        def move(self, op: Op, do: Action) -> None: ...

        def kill(self, op: Op, cause: str, *, message: str | None = None) -> None: ...

        def kill_runner_tree(self, pid: int) -> asyncio.Task[bool]: ...


monotonic = time.monotonic
# Seconds for a runner to kill its tree. Then the executor kills it: the runner shares the sandbox's CPU time with the
# tree, and next to a thousand busy processes it would need minutes.
KILL_ALONE = 0.3
KILL_PATIENCE = 10.0  # seconds for a killed tree to die; then the runner counts as lost
MUCH = 4096  # unread bytes in the pipes: the smallest pipes are full then


class OpRun:
    """The I/O of one op: created with it, given a runner by `launch`, released by `close`."""

    __slots__ = (
        "_deadline", "_kill", "_killing", "_launched_at", "_look", "_ops", "_quiet", "_signals", "_starting", "input", "op",
        "output", "runner", "runner_pid", "watchers",
    )  # fmt: skip

    def __init__(self, ops: Ops, op: Op) -> None:
        self._ops = ops
        self.op = op
        self.runner: Runner | None = None
        self.runner_pid = 0  # of the last runner, as the executor knows it
        self.output = OpOutput(ops.loop, op.log, changed=self.changed)
        self.input: OpInput | None = None
        self._quiet = 0.0  # seconds by which the runner delays its report of the start
        self._launched_at = 0.0
        self._starting = False  # counts as one of the ops that are starting
        self._kill: asyncio.Task[bool] | None = None  # the executor's, of the runner's processes
        self._deadline: asyncio.TimerHandle | None = None
        self._killing: asyncio.TimerHandle | None = None
        self._look: asyncio.TimerHandle | None = None
        self._signals: OpSignals | None = None
        self.watchers: list[asyncio.Future[None]] = []
        terminal = op.spec.pty is not None
        if terminal or op.spec.stdin is True:
            from .stdin import OpInput  # imported on first use: an idle sidecar saves its memory

            op.stdin = Stdin.OPEN
            self.input = OpInput(self, terminal=terminal)

    # -- start -----------------------------------------------------------------------------------------------

    def launch(self, runner: Runner) -> None:
        """Send the command and its descriptors to the runner."""
        ops, op, spec = self._ops, self.op, self.op.spec
        self.runner, self.runner_pid = runner, runner.pid
        runner.on_message = self._message
        runner.on_lost = self._runner_lost
        if spec.pty is None and spec.quiet:
            self._quiet = min(spec.quiet, QUIET) if self.watchers else spec.quiet
        message = command.message(op, ops, quiet=self._quiet, size=self.output.size)
        self._launched_at = time.time()
        self._starting = True
        if spec.pty is not None:
            runner.send(message)
        else:
            out, err = self.output.open_pipes()
            stdin = self._stdin()
            runner.send(message, (stdin, out, err))
            os.close(out)
            os.close(err)
            if stdin != ops.devnull:
                os.close(stdin)
        # The runner reads them once the command runs: sent before it, they would hit nothing, or what an earlier op left.
        if self._signals is not None:
            self._signals.send_early(runner)
        if spec.timeout is not None:
            self._deadline = ops.loop.call_later(spec.timeout, self._timeout)
        if self._quiet:
            pause = ops.pace.seconds
            self._look = ops.loop.call_later(pause, self._look_at_output, pause)

    def _stdin(self) -> int:
        if self.input is not None:
            return self.input.give()
        data = self.op.spec.stdin
        return self._ops.devnull if data is None else command.input_of(data)

    def _has_started(self) -> None:
        if self._starting:
            self._starting = False
            self._ops.has_started()

    # -- runner messages -------------------------------------------------------------------------------------

    def _message(self, message: dict[str, Any], fds: list[int]) -> None:
        op = self.op
        if "ended" in message:
            if op.trace is not None:
                op.trace.spawned, op.trace.ran = message.get("spawned"), message.get("ran")
            if op.started_at is None:  # a quiet op that ended before its runner reported the start
                self._show_start()
            self._ended(message["ended"])
        elif "started" in message:
            if fds:
                self.output.open_terminal(fds.pop(0))
            self._ops.move(op, op.has_started(message["started"], at=time.time()))
            self.begin_reading()
            self.changed()
        elif "failed" in message:
            self._ended({"leftover": 0, **message})
        elif "kills" in message:
            self._ops.move(op, op.at_limit(message["kills"]))
        for fd in fds:
            os.close(fd)
        if not self._quiet or "started" not in message:
            self._has_started()

    def _show_start(self) -> None:
        """Record the start of an op whose runner has not reported it yet."""
        self._ops.move(self.op, self.op.has_started(None, at=self._launched_at))

    def tell_start(self) -> None:
        """Append the start frame to the log."""
        op = self.op
        # Formatted by hand: `json` takes 5% of this process's time, and an op id needs no escapes (spec.op_id).
        pid = "null" if op.pid is None else op.pid
        start = f'{{"op_id":"{op.op_id}","pid":{pid},"started_at":{op.started_at!r}}}'
        op.log.append(START, start.encode("ascii"))

    def _ended(self, facts: dict[str, Any]) -> None:
        # The executor may still be killing there: it must not hit the next op.
        self._give_back(clean=not facts.get("leftover") and self._kill is None)
        if self._kill is None:
            self._ops.move(self.op, self.op.exited(facts, now=monotonic()))
            return
        self._ops.move(self.op, self.op.being_killed(facts))
        if not facts.get("init_killed"):
            self._kill.add_done_callback(self._killed)

    def _runner_lost(self) -> None:
        """Handle a channel that broke in the middle of the op."""
        self._give_back(clean=False)
        ending = self.op.state is State.ENDING
        self._ops.move(self.op, self.op.runner_lost(now=monotonic()))
        if ending:  # the executor is not asked for the cgroup's counters, which would kill what is left
            kill = self._kill
            if kill is None or kill.done():  # an earlier answer says nothing of an init that has died since
                kill = self._ops.kill_runner_tree(self.runner_pid)
            kill.add_done_callback(self._killed)

    def _killed(self, kill: asyncio.Task[bool]) -> None:
        """Handle the end of the executor's kill: if that took the init, the op ends with the next one's start."""
        if kill.cancelled() or kill.exception() is not None or not kill.result():
            self._ops.move(self.op, self.op.settled(now=monotonic()))

    def _give_back(self, *, clean: bool) -> None:
        runner, self.runner = self.runner, None
        self.output.over = True
        self.output.drain()
        if runner is not None:
            self._ops.pool.give_back(runner, clean=clean)

    # -- output ----------------------------------------------------------------------------------------------

    def _look_at_output(self, pause: float) -> None:
        """Let the next op start, and begin to read the output if the pipes may fill up."""
        self._look = None
        if self._starting:
            self._ops.pace.outlasted()
            self._has_started()
        if self.output.watched or self.runner is None:
            return
        if self.output.waiting() >= MUCH:
            self._show_start()
            self.begin_reading()
        else:
            self._look = self._ops.loop.call_later(2 * pause, self._look_at_output, 2 * pause)

    def watch(self) -> None:
        """Begin to read output as it comes, for a new watcher."""
        if self.runner is not None and self._quiet > QUIET and self.op.started_at is None:
            self._show_start()
        self.begin_reading()

    def begin_reading(self) -> None:
        """Read the pipes (or the terminal) as output comes."""
        if self.op.started_at is not None and self.op.state is not State.ENDED:
            self.output.watch()

    def drain(self) -> None:
        """Read what is in the pipes now, without waiting for their end."""
        self.output.drain()

    def changed(self) -> None:
        """Wake those that wait for more output or the end."""
        if self.watchers:
            watchers, self.watchers = self.watchers, []
            for watcher in watchers:
                if not watcher.done():
                    watcher.set_result(None)

    # -- signals ---------------------------------------------------------------------------------------------

    def _timeout(self) -> None:
        self._deadline = None
        limit = self.op.spec.timeout if self.op.spec is not None else 0.0
        self._ops.kill(self.op, CommandVerdict.TIMEOUT, message=f"reached its time limit of {limit:g} s")

    def kill(self) -> None:
        """Kill the op's whole tree."""
        if self.runner is not None and self._killing is None:
            self.runner.send({"kill": True})
            self._killing = self._ops.loop.call_later(KILL_ALONE, self._kill_from_outside)

    def _kill_from_outside(self) -> None:
        self._killing = self._ops.loop.call_later(KILL_PATIENCE, self._stuck)
        if self.runner is not None:
            self._kill = self._ops.kill_runner_tree(self.runner.pid)

    def _stuck(self) -> None:
        self._killing = None
        if self.runner is not None:
            self.runner.close()
            self._runner_lost()

    def signal(self, number: int, *, tree: bool, dedupe: str | None = None) -> None:
        """Send a signal to the op's process or its whole tree, once per id; before the op has a runner, keep it.

        Raises 503 if too many are unread.
        """
        if self._signals is None:
            self._signals = OpSignals(self.op)
        self._signals.signal(self.runner, number, tree=tree, dedupe=dedupe)

    def close(self) -> None:
        """Release all descriptors and timers after the op's end."""
        self._has_started()
        for timer in (self._deadline, self._killing, self._look):
            if timer is not None:
                timer.cancel()
        self._deadline = self._killing = self._look = None
        runner, self.runner = self.runner, None
        if runner is not None:
            self._ops.pool.give_back(runner, clean=False)
        if self._signals is not None:
            self._signals.forget_early()
        self.output.close()
        if self.input is not None:
            self.input.close()
