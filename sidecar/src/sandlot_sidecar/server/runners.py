"""Pool of runners: one ready at all times, more as ops queue up, each reused if its op left no processes."""

from __future__ import annotations

import asyncio
import os
import socket

from ..core.errors import SidecarError
from ..executor import wire
from . import log
from .executor_client import ExecutorError, ExecutorGone
from .sendqueue import SendQueue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from .diagnosis import OpDiagnosis
    from .executor_client import ExecutorClient

    Made = tuple[int, int]  # a runner's pid as the executor knows it, and its channel

IDLE_SECONDS = 10.0  # a spare runner is kept this long
# Delay before a busy runner's replacement is forked: most ops have ended by then, and when many begin at once, each
# fork would take CPU time from their first commands.
SPARE_DELAY = 0.2
MAKING = 2  # runners forked at once: one that becomes free is available sooner than a new one
RETRIES = 3
# Seconds without an owner until no runner is kept: where owners queue, the next comes sooner.
REST_AFTER = 1.0


class Runner:
    """Channel to a runner. `on_message` gets each message with its descriptors, `on_lost` the end of the channel."""

    __slots__ = ("_loop", "_queue", "lost", "on_lost", "on_message", "pid", "sock")

    def __init__(self, sock: socket.socket, *, pid: int, loop: asyncio.AbstractEventLoop) -> None:
        self.sock = sock
        self.pid = pid  # the executor's name for it
        self._loop = loop
        self.lost = False
        self.on_message: Callable[[dict[str, Any], list[int]], None] = _ignore
        self.on_lost: Callable[[], None] = _nothing
        sock.setblocking(False)
        self._queue = SendQueue(sock, loop=loop, on_broken=self._broken)
        loop.add_reader(sock.fileno(), self.readable)

    def readable(self) -> None:
        """Receive one message or the end of the channel."""
        if self.lost:
            return
        try:
            received = wire.receive_packet(self.sock)
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, wire.WireError):
            received = None
        if received is None:
            self.close()
            self.on_lost()
        else:
            self.on_message(*received)

    def send(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        """Send one message; if the runner is gone, `on_lost` reports it."""
        if self.lost:
            return
        memory: list[int] = []
        try:
            data, memory = wire.packet(message)
            self._queue.send(data, (*fds, *memory))
        except OSError:
            self._loop.call_soon(self._broken)
        finally:
            wire.close_all(memory)

    @property
    def unsent(self) -> int:
        """Number of messages that the runner's socket has not accepted yet."""
        return len(self._queue)

    def _broken(self) -> None:
        if not self.lost:
            self.close()
            self.on_lost()

    def close(self) -> None:
        """Close the channel, upon which the runner exits."""
        if not self.lost:
            self.lost = True
            self._queue.close()
            self._loop.remove_reader(self.sock.fileno())
            self.sock.close()


def _ignore(_message: dict[str, Any], fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


def _nothing() -> None:
    return


class RunnersFailed(SidecarError):
    """No runner can be started; `oom`: because the sandbox's memory is full."""

    def __init__(self, message: str, *, oom: bool) -> None:
        super().__init__(message)
        self.oom = oom


class RunnerPool:
    """Idle runners and those being forked. `on_ready` is called when an op may get one."""

    def __init__(self, executor: ExecutorClient, reasons: OpDiagnosis) -> None:
        self._executor = executor
        self._reasons = reasons
        self._loop = asyncio.get_running_loop()
        self._idle: list[Runner] = []
        self._busy: set[Runner] = set()
        self._making: set[asyncio.Task[None]] = set()
        self._trim: asyncio.TimerHandle | None = None
        self._spare: asyncio.TimerHandle | None = None
        self._again: asyncio.TimerHandle | None = None
        self._rest: asyncio.TimerHandle | None = None
        self._failures, self._asking = 0, False
        self._open = False
        self.made = 0
        self.on_ready: Callable[[], None] = _nothing
        self.on_failed: Callable[[RunnersFailed], None] = lambda error: None
        self.waiting: Callable[[], int] = lambda: 0

    def open(self, made: Made | None = None) -> None:
        """Begin to keep a runner ready; one may be `made` already."""
        self._stay_awake()
        self._open = True
        if made is not None:
            self._add(made)
        self.want()

    def pause(self) -> None:
        """Start no runner and give none to an op until `open`; those that are ready stay."""
        self._open = False

    def tell(self, message: dict[str, Any]) -> None:
        """Send the runners that are ready a message that has no answer."""
        for runner in self._idle:
            runner.send(message)

    def rest_later(self) -> None:
        """Rest unless an owner comes within a moment, who then needs no fork of a runner."""
        if self._open and self._rest is None:
            self._rest = self._loop.call_later(REST_AFTER, self.rest)

    def _stay_awake(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None

    def rest(self) -> None:
        """Keep no runner ready while the sandbox has no owner, since each costs 1.8 MiB."""
        self._stay_awake()
        self._open = False
        for runner in self._idle:
            runner.close()
        self._idle.clear()

    def take(self) -> Runner | None:
        """Take an idle runner for an op, or return None."""
        if not self._idle or not self._open:
            return None
        runner = self._idle.pop()
        self._busy.add(runner)
        if not self._idle and self._spare is None:
            self._spare = self._loop.call_later(SPARE_DELAY, self._keep_one)
        return runner

    def _keep_one(self) -> None:
        self._spare = None
        if not self._idle and not self._making and self._open:
            self._make()

    def give_back(self, runner: Runner, *, clean: bool) -> None:
        """Take a runner back after its op: reuse it if clean, otherwise close it together with what is left over."""
        self._busy.discard(runner)
        self._failures = 0
        if runner.lost or not clean or not self._open:
            runner.close()
            self.want()
            return
        runner.on_message = _ignore
        runner.on_lost = lambda: self._lost(runner)
        self._idle.append(runner)
        if len(self._idle) > 1 and self._trim is None:
            self._trim = self._loop.call_later(IDLE_SECONDS, self._drop_extra)

    def _lost(self, runner: Runner) -> None:
        """Handle the death of an idle runner; a lasting cause, such as no memory, must not make us fork forever."""
        if runner in self._idle:
            self._idle.remove(runner)
        if self._open and not self._asking:  # runners that die together are one failure
            self._asking = True
            self._keep(self._ask_why(runner.pid))

    async def _ask_why(self, runner: int) -> None:
        facts = await self._reasons.counters(runner)
        self._asking = False
        self._failed(RunnersFailed("runners die as soon as they are started", oom=bool(facts.get("oom"))))

    def _failed(self, error: RunnersFailed) -> None:
        if not self._open:  # its runners were ended with the init: the pool that follows has not failed
            return
        self._failures += 1
        if self._failures >= RETRIES:
            self._failures = 0
            self.on_failed(error)
        elif self._again is None:
            self._again = self._loop.call_later(0.05 * self._failures, self._try_again)

    def _try_again(self) -> None:
        self._again = None
        self.want()

    def _drop_extra(self) -> None:
        """Close half of the spare runners; repeats until one is left."""
        self._trim = None
        keep = max(1, len(self._idle) // 2)
        for runner in self._idle[keep:]:
            runner.close()
        del self._idle[keep:]
        if len(self._idle) > 1:
            self._trim = self._loop.call_later(IDLE_SECONDS, self._drop_extra)

    def want(self) -> None:
        """Fork as many runners as ops wait for (a few at a time), or one if there is none."""
        if not self._open:
            return
        missing = self.waiting() - len(self._idle)
        if missing <= 0 and not self._idle and not self._busy:
            missing = 1
        for _ in range(min(missing, MAKING) - len(self._making)):
            self._make()

    def _make(self) -> None:
        self._keep(self._make_one())

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._making.add(task)
        task.add_done_callback(self._making.discard)

    async def _make_one(self) -> None:
        try:
            answer, fds = await self._executor.ask("runner", descriptors=1)
        except ExecutorGone:
            return
        except SidecarError as error:
            log.failure("runner_failed", error)
            full = isinstance(error, ExecutorError) and error.code == "memory_full"
            self._failed(RunnersFailed(str(error), oom=full))
            return
        made = answer["runner"], fds[0]
        if self._open:
            self._add(made)
        else:
            self.made += 1
            os.close(fds[0])

    def _add(self, made: Made) -> None:
        self.made += 1
        pid, channel = made
        runner = Runner(socket.socket(fileno=channel), pid=pid, loop=self._loop)
        runner.on_lost = lambda: self._lost(runner)
        self._idle.append(runner)
        if len(self._idle) > 1 and self._trim is None:
            self._trim = self._loop.call_later(IDLE_SECONDS, self._drop_extra)
        self._loop.call_soon(self._made)

    def _made(self) -> None:
        self.on_ready()
        self.want()

    async def close(self) -> None:
        """Close all runners, before a reset or at the end."""
        self._stay_awake()
        self._open = False
        for timer in (self._trim, self._spare, self._again):
            if timer is not None:
                timer.cancel()
        self._trim = self._spare = self._again = None
        if self._making:
            await asyncio.wait(list(self._making))
        for runner in [*self._idle, *self._busy]:
            runner.close()
        self._idle.clear()
        self._busy.clear()
