"""One running op: its runner, its pipes or terminal, its timers; nothing here outlives the op."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
import time

from sandlot_contract.frames import START, STDERR, STDOUT

from .errors import busy
from .machine import ENDED, SIGKILL
from .recent import Recent
from .spec import QUIET
from .stdin import StdinWriter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from .machine import Op
    from .pace import Pace
    from .runners import Runner, RunnerPool
    from .tasks import Tasks

    class Ops(Protocol):
        """What an op needs of those around it, and whom it tells."""

        loop: asyncio.AbstractEventLoop
        pool: RunnerPool
        tasks: Tasks
        pace: Pace
        environment: dict[str, str]
        workdir: str | None
        user: str | int | None
        devnull: int

        def has_started(self) -> None: ...

        def finish(self, op: Op, facts: dict[str, Any]) -> None: ...

        def kill(self, op: Op, cause: str, *, message: str | None = None) -> None: ...

        def kill_runner_tree(self, pid: int) -> None: ...

        async def init_alive(self) -> bool: ...

        async def disk_full(self) -> str | None: ...


READ_SIZE = 256 * 1024
PIPE_SIZE = 1 << 20
# Reads of one pipe at the end of an op, and bytes: a child that goes on writing must not hold us there. A pipe has as
# many pages as PIPE_SIZE has at most, and one that is set to packets (O_DIRECT) gives one of them a read, however small.
DRAIN_READS = 1024
DRAIN_BYTES = 4 * PIPE_SIZE
SMALL_STDIN = 64 * 1024  # fits into a fresh pipe
# Seconds for a runner to kill its tree; then the executor does it: the runner shares the sandbox's processor time
# with the tree, and next to a thousand busy processes it would need minutes.
KILL_ALONE = 0.3
# Linux protects the PID 1 of a namespace from what runs in it, gVisor does not: there its end is the code's own doing,
# a SIGKILL like any other.
INIT_IS_MORTAL = not os.path.exists("/proc/self/ns/pid_for_children")
LIMITS_REACHED = {"oom": "the memory limit was reached", "pids_limit": "the process limit was reached"}
LOOK_AGAIN = 0.05  # seconds until the next look whether a process holds the terminal again
MUCH = 4096  # bytes that wait in its pipes: the smallest ones are full then
_FIONREAD = 0x541B
MOST_UNSENT = 64  # signals that a runner has not read: code can keep it busy
KILL_PATIENCE = 10.0  # seconds for a killed tree to die; then the runner counts as lost


class OpRun:
    """The I/O of one op. Created with the op; `launch` when a runner is its own; `close` at the end."""

    __slots__ = (
        "_deadline",
        "_err",
        "_grown",
        "_killing",
        "_launched_at",
        "_look",
        "_ops",
        "_out",
        "_quiet",
        "_reading",
        "_signals",
        "_spent",
        "_starting",
        "_stdin_read",
        "_writer",
        "master",
        "op",
        "runner",
        "stdin",
        "terminal",
        "watchers",
    )  # fmt: skip

    def __init__(self, ops: Ops, op: Op) -> None:
        self._ops = ops
        self.op = op
        self.runner: Runner | None = None
        self.master = -1
        self.stdin = -1
        self._stdin_read = -1
        self._out = self._err = -1
        self._reading = False
        self._grown = False
        self._quiet = 0.0  # seconds that the runner tells its start late
        self._launched_at = 0.0
        self._starting = False
        self._spent = False
        self._deadline: asyncio.TimerHandle | None = None
        self._killing: asyncio.TimerHandle | None = None
        self._look: asyncio.TimerHandle | None = None
        self._writer: StdinWriter | None = None
        self._signals: Recent | None = None
        self.terminal = op.spec.pty is not None
        self.watchers: list[asyncio.Future[None]] = []
        spec = op.spec
        if spec.pty is None and spec.stdin is True:
            self._stdin_read, self.stdin = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(self.stdin, False)

    # -- begin -----------------------------------------------------------------------------------------------

    def launch(self, runner: Runner) -> None:
        """Send the command with its descriptors."""
        ops, spec = self._ops, self.op.spec
        self.runner = runner
        runner.on_message = self._message
        runner.on_lost = self._runner_lost
        run = self._command()
        self._launched_at = time.time()
        self._starting = True
        if spec.pty is not None:
            runner.send({"run": run})
        else:
            out, out_write = os.pipe2(os.O_CLOEXEC)
            err, err_write = os.pipe2(os.O_CLOEXEC)
            self._out, self._err = out, err
            os.set_blocking(out, False)
            os.set_blocking(err, False)
            stdin = self._stdin()
            runner.send({"run": run}, (stdin, out_write, err_write))
            os.close(out_write)
            os.close(err_write)
            if stdin != ops.devnull:
                os.close(stdin)
        if spec.timeout is not None:
            self._deadline = ops.loop.call_later(spec.timeout, self._timeout)
        if self._quiet:
            pause = ops.pace.seconds
            self._look = ops.loop.call_later(pause, self._look_at_output, pause)

    def _command(self) -> dict[str, Any]:
        ops, op, spec = self._ops, self.op, self.op.spec
        env = {**ops.environment, **spec.env, "SANDLOT_OP": op.op_id}
        run: dict[str, Any] = {"env": env, "mark": op.op_id, "cwd": spec.cwd or ops.workdir}
        user = ops.user if spec.user is None else spec.user
        if user is not None:
            run["user"] = user
        if isinstance(spec.command, list):
            run["argv"] = spec.command
        else:
            run["shell"] = spec.command
            run["shell_kind"] = spec.shell
        limits = {}
        if spec.memory is not None:
            limits["memory"] = spec.memory
        if spec.pids is not None:
            limits["pids"] = spec.pids
        if limits:
            run["limits"] = limits
        if spec.pty is not None:
            run["pty"] = spec.pty
        elif spec.quiet:
            self._quiet = run["quiet"] = min(spec.quiet, QUIET) if self.watchers else spec.quiet
        return run

    def _stdin(self) -> int:
        data = self.op.spec.stdin
        if data is None:
            return self._ops.devnull
        if data is True:
            fd, self._stdin_read = self._stdin_read, -1
            return fd
        if len(data) <= SMALL_STDIN:
            read, write = os.pipe2(os.O_CLOEXEC)
            os.write(write, data)
            os.close(write)
            return read
        memory = os.memfd_create("stdin", os.MFD_CLOEXEC)
        with memoryview(data) as view:
            written = 0
            while written < len(view):
                written += os.write(memory, view[written:])
        os.lseek(memory, 0, os.SEEK_SET)
        return memory

    # -- what the runner says --------------------------------------------------------------------------------

    def _has_started(self) -> None:
        if self._starting:
            self._starting = False
            self._ops.has_started()

    def _message(self, message: dict[str, Any], fds: list[int]) -> None:
        op = self.op
        if "ended" in message:
            if op.started_at is None:  # it was quiet, and has ended before the runner told of its start
                self._started(None, at=self._launched_at)
            self._ended(message["ended"])
        elif "started" in message:
            if fds:
                self.master = fds.pop(0)
                os.set_blocking(self.master, False)
            if op.started_at is None:
                self._started(message["started"], at=time.time())
            op.pid = message["started"]
            self.begin_reading()
            self.changed()
        elif "failed" in message:
            self._ended({"leftover": 0, **message})
        elif "kills" in message and op.cause is None:
            # The runner may not come to say more: it can take the end of the sandbox's init to end a bomb.
            op.cause, op.cause_message = message["kills"], LIMITS_REACHED[message["kills"]]
        for fd in fds:
            os.close(fd)
        if not self._quiet or "started" not in message:
            self._has_started()

    def _started(self, pid: int | None, *, at: float) -> None:
        op = self.op
        op.pid, op.started_at = pid, at
        # By hand: `json` takes a twentieth of this process's time, and an op's id needs no escapes (spec.op_id).
        start = f'{{"op_id":"{op.op_id}","pid":{"null" if pid is None else pid},"started_at":{at!r}}}'
        op.log.append(START, start.encode("ascii"))

    def _ended(self, facts: dict[str, Any]) -> None:
        runner, self.runner = self.runner, None
        self.drain()
        if runner is not None:
            # The executor may still be killing: it must not meet the next op there.
            self._ops.pool.give_back(runner, clean=not facts.get("leftover") and not self._spent)
        by_itself = not self.op.cause
        if by_itself and _is_unexplained(facts):
            self._ops.tasks.spawn(self._ask_alive(facts))
        elif by_itself and facts.get("exit_code") and not facts.get("signal") and not facts.get("failed"):
            self._ops.tasks.spawn(self._ask_disk(facts))
        else:
            self._ops.finish(self.op, facts)

    async def _ask_disk(self, facts: dict[str, Any]) -> None:
        """A command that failed by itself: was the disk full?"""
        try:
            facts["disk_full"] = await self._ops.disk_full()
        finally:
            self._ops.finish(self.op, facts)

    async def _ask_alive(self, facts: dict[str, Any], *, otherwise: str | None = None) -> None:
        """A command that somebody killed, or that could not be started: has the sandbox's init taken it along?

        `otherwise` is what to say of one that is lost although the init lives.
        """
        message = otherwise
        try:
            if not await self._ops.init_alive():
                if INIT_IS_MORTAL:
                    facts, message = {"signal": SIGKILL}, None
                else:
                    facts, message = {}, "the sandbox's first process was lost"
            if message is not None:
                self._ops.kill(self.op, "sandbox_broken", message=message)
        finally:
            self._ops.finish(self.op, facts)

    def _runner_lost(self) -> None:
        """The channel ended in the middle of the op."""
        runner, self.runner = self.runner, None
        self.drain()
        if runner is None:
            self._ops.finish(self.op, {})
            return
        self._ops.pool.give_back(runner, clean=False)
        if self.op.cause is None:
            self._ops.tasks.spawn(self._ask_why(runner.pid))
        else:
            self._ops.kill_runner_tree(runner.pid)
            self._ops.finish(self.op, {})

    async def _ask_why(self, runner: int) -> None:
        """The runner was lost, as code can make it: the kernel may kill it in place of the op that fills the memory."""
        facts = await self._ops.pool.why_lost(runner)
        if facts:
            self._ops.finish(self.op, facts)
        else:
            await self._ask_alive({}, otherwise="the process that ran the command was lost")

    # -- output ----------------------------------------------------------------------------------------------

    def _look_at_output(self, pause: float) -> None:
        """It has not ended: let the next one start, and read its output if its pipes may become full."""
        self._look = None
        if self._starting:
            self._ops.pace.outlasted()
            self._has_started()
        if self._reading or self.runner is None:
            return
        if self._waiting_bytes() >= MUCH:
            self._started(None, at=self._launched_at)
            self.begin_reading()
        else:
            self._look = self._ops.loop.call_later(2 * pause, self._look_at_output, 2 * pause)

    def _waiting_bytes(self) -> int:
        return _waiting(self._out) + _waiting(self._err)

    def watch(self) -> None:
        """Somebody reads along: output is given when it comes, also that of a command that has not been told."""
        if self.runner is not None and self._quiet > QUIET and self.op.started_at is None:
            self._started(None, at=self._launched_at)
        self.begin_reading()

    def begin_reading(self) -> None:
        """Watch the pipes (or the terminal) from now on."""
        if self._reading or self.op.started_at is None or self.op.state is ENDED:
            return
        self._reading = True
        loop = self._ops.loop
        self._watch_terminal()
        if self._out >= 0:
            loop.add_reader(self._out, self._read, self._out, STDOUT)
            loop.add_reader(self._err, self._read, self._err, STDERR)

    def _read(self, fd: int, kind: int) -> int:
        """Take what is there, and say how much; 0 when there is nothing more for now."""
        try:
            data = os.read(fd, READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:  # a terminal that no process holds
            data = b""
        if not data:
            if fd == self.master and self.runner is not None:
                self._terminal_left()
            else:
                self._close_output(fd)
            return 0
        if len(data) >= 65536 and not self._grown and fd != self.master:
            self._grown = True
            for pipe in (self._out, self._err):
                try:
                    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
                except OSError:  # the user's share of pipe memory is used up: slower, not wrong
                    break
        self.op.log.append(kind, data)
        if self.watchers:
            self.changed()
        return len(data)

    def _watch_terminal(self) -> None:
        if self.master >= 0:
            self._ops.loop.add_reader(self.master, self._read, self.master, STDOUT)

    def _terminal_left(self) -> None:
        """No process holds the terminal. Were our end closed, the command got a hangup: it is about to exit, or goes on."""
        loop = self._ops.loop
        loop.remove_reader(self.master)
        self._look = loop.call_later(LOOK_AGAIN, self._watch_terminal)

    def drain(self) -> None:
        """Take what is in the pipes at this moment, although somebody may still hold them."""
        for fd, kind in ((self.master, STDOUT), (self._out, STDOUT), (self._err, STDERR)):
            if fd >= 0:
                self._drain(fd, kind)

    def _drain(self, fd: int, kind: int) -> None:
        left = DRAIN_BYTES
        for _ in range(DRAIN_READS):
            taken = self._read(fd, kind)
            if not taken:
                return
            left -= taken
            if left <= 0:
                break
        if _waiting(fd):
            self.op.log.truncated = True

    def _close_output(self, fd: int) -> None:
        if fd < 0:
            return
        if self._reading:
            self._ops.loop.remove_reader(fd)
        if fd == self.master:
            self._ops.loop.remove_writer(fd)
        os.close(fd)
        if fd == self.master:
            self.master = -1
        elif fd == self._out:
            self._out = -1
        elif fd == self._err:
            self._err = -1

    def changed(self) -> None:
        """Wake whoever waits for more output or the end."""
        watchers, self.watchers = self.watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(None)

    # -- signals ---------------------------------------------------------------------------------------------

    def _timeout(self) -> None:
        self._deadline = None
        limit = self.op.spec.timeout if self.op.spec is not None else 0.0
        self._ops.kill(self.op, "timeout", message=f"reached its time limit of {limit:g} s")

    def kill(self) -> None:
        """Kill the whole tree."""
        if self.runner is not None and self._killing is None:
            self.runner.send({"kill": True})
            self._killing = self._ops.loop.call_later(KILL_ALONE, self._kill_from_outside)

    def _kill_from_outside(self) -> None:
        self._killing = self._ops.loop.call_later(KILL_PATIENCE, self._stuck)
        if self.runner is not None:
            self._spent = True
            self._ops.kill_runner_tree(self.runner.pid)

    def _stuck(self) -> None:
        self._killing = None
        if self.runner is not None:
            self.runner.close()
            self._runner_lost()

    def stdin_writer(self) -> StdinWriter | None:
        """The way in; None when the op was started without one."""
        if self._writer is None and (self.terminal or self.stdin >= 0):
            self._writer = StdinWriter(self)
        return self._writer

    def signal(self, number: int, *, tree: bool, dedupe: str | None = None) -> None:
        """Send a signal to the op's process or its whole tree, once per id. Raises 503 where too many wait."""
        runner = self.runner
        known = self._signals
        sent = dedupe is not None and known is not None and known.get(dedupe) is not None
        if not sent and runner is not None and runner.unsent >= MOST_UNSENT:
            raise busy(f"{runner.unsent} signals to this op wait; try again after Retry-After")
        if dedupe is not None:
            known = self._signals = known or Recent()
            known.put(dedupe, 1)
        if sent:
            return
        self.op.sent_signal = number
        if runner is not None:
            runner.send({"signal": number, "tree": tree})

    def resize(self, *, cols: int, rows: int) -> bool:
        """Change the terminal's size; False when there is none any more."""
        if self.master < 0:
            return False
        import struct
        import termios

        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        return True

    def close_stdin(self) -> None:
        """End of file for the process."""
        if self.stdin >= 0:
            self._ops.loop.remove_writer(self.stdin)
            os.close(self.stdin)
            self.stdin = -1

    def close(self) -> None:
        """Give every descriptor and timer back (the op has ended)."""
        self._has_started()
        for timer in (self._deadline, self._killing, self._look):
            if timer is not None:
                timer.cancel()
        self._deadline = self._killing = self._look = None
        runner, self.runner = self.runner, None
        if runner is not None:
            self._ops.pool.give_back(runner, clean=False)
        for fd in (self.master, self._out, self._err):
            self._close_output(fd)
        self.close_stdin()
        if self._stdin_read >= 0:
            os.close(self._stdin_read)
            self._stdin_read = -1


def _waiting(fd: int) -> int:
    """Bytes that are there to be read; of a terminal that no process holds, none."""
    try:
        return int.from_bytes(fcntl.ioctl(fd, _FIONREAD, bytes(4)), sys.byteorder)
    except OSError:
        return 0


def _is_unexplained(facts: dict[str, Any]) -> bool:
    if facts.get("failed"):
        return facts["failed"] == "oom"  # what a fork in a dead PID namespace fails with
    return facts.get("signal") == SIGKILL and not facts.get("oom") and not facts.get("node_oom")
