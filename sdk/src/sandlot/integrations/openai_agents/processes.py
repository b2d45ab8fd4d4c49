"""Processes that outlive the tool call that started them, for `exec_command` and `write_stdin`."""
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agents.sandbox.errors import PtySessionNotFoundError
from agents.sandbox.session.pty_output import collect_pty_output
from agents.sandbox.session.pty_types import (
    PTY_PROCESSES_MAX,
    PtyExecUpdate,
    allocate_pty_process_id,
    clamp_pty_yield_time_ms,
    process_id_to_prune_from_meta,
    resolve_pty_write_yield_time_ms,
)

from sandlot._async.process import AsyncProcess
from sandlot._async.sandbox import AsyncSandbox
from sandlot.errors import Conflict
from sandlot.integrations._lost_commands import KILLED, own_end
from sandlot.integrations._shared_loop import on_shared_loop
from sandlot.integrations.openai_agents.losses import Calls
from sandlot.integrations.openai_agents.results import DROPPED, exit_code_of
from sandlot.models import Exit

START_YIELD = 10.0  # seconds to wait for output, the defaults of the framework's tools
WRITE_YIELD = 0.25
PIECE = 64 * 1024
PIECES = 64  # of unread output that a process may have here: the oldest go first
READS_NOTHING = 20.0  # seconds until a process that does not read its input is given up
_NOT_READ = b"[the process does not read its input: some of it was not written]\n"


@dataclass(eq=False)
class _Running:
    process: AsyncProcess
    tty: bool
    output: deque[bytes] = field(default_factory=deque[bytes])
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    used: float = field(default_factory=time.monotonic)
    dropped: bool = False  # output that no tool call has fetched
    reader: asyncio.Task[Exit] | None = None

    async def read(self) -> Exit:
        """Keep the output until a tool call fetches it, and then the end. Raises the SDK's errors."""
        try:
            async for event in self.process:
                if isinstance(event, Exit):
                    return event
                self._keep(event.data)
                self.news.set()
            raise AssertionError("the stream had no end")
        finally:
            self.closed.set()
            self.news.set()

    def _keep(self, data: bytes) -> None:
        if self.output and len(self.output[-1]) + len(data) <= PIECE:
            data = self.output.pop() + data
        self.output.append(data)
        while len(self.output) > PIECES:
            self.output.popleft()
            self.dropped = True


class Processes:
    """The running processes of a session, by the number that the model knows them by."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._running: dict[int, _Running] = {}  # used on the process's loop alone

    async def start(
        self,
        words: Sequence[str],
        *,
        tty: bool,
        user: str | None,
        env: Mapping[str, str],
        cwd: str | None,
        timeout: float | None,
        yield_seconds: float | None,
        tokens: int | None,
    ) -> PtyExecUpdate:
        """Start a process; return its output so far, and its end if it came in time."""
        seconds = START_YIELD if yield_seconds is None else yield_seconds

        async def started(box: AsyncSandbox) -> PtyExecUpdate:
            await self._make_room()
            process = await box.start(
                list(words), pty=tty, stdin=tty, timeout=timeout, env=env, cwd=cwd, user=user
            )
            running = _Running(process, tty)
            running.reader = asyncio.create_task(running.read())
            number = allocate_pty_process_id(set(self._running))
            self._running[number] = running
            return await self._update(number, running, clamp_pty_yield_time_ms(int(seconds * 1000)), tokens)

        return await self._calls.run(started)

    async def write(
        self, number: int, chars: str, *, yield_seconds: float | None, tokens: int | None
    ) -> PtyExecUpdate:
        """Write to a process's terminal, then return its further output. Raises PtySessionNotFoundError."""
        wanted = int((WRITE_YIELD if yield_seconds is None else yield_seconds) * 1000)
        milliseconds = resolve_pty_write_yield_time_ms(yield_time_ms=wanted, input_empty=not chars)

        async def written(_: AsyncSandbox) -> PtyExecUpdate:
            running = self._running.get(number)
            if running is None:
                raise PtySessionNotFoundError(session_id=number)
            if chars and not running.tty:
                # The framework's tool compares this text.
                raise RuntimeError("stdin is not available for this process")
            if chars:
                try:
                    async with asyncio.timeout(READS_NOTHING):
                        await running.process.write(chars)
                except Conflict:
                    pass  # it has ended, which its update tells
                except TimeoutError:
                    running.output.append(_NOT_READ)
            return await self._update(number, running, milliseconds, tokens)

        return await self._calls.run(written)

    async def end_all(self) -> None:
        """End all processes."""

        async def ended() -> None:
            processes = list(self._running.values())
            self._running.clear()
            await _end(processes)

        # Not by `run`, which raises an earlier loss: the readers end also then.
        await on_shared_loop(ended, to_the_end=True)

    async def _update(
        self, number: int, running: _Running, milliseconds: int, tokens: int | None
    ) -> PtyExecUpdate:
        output, count, closed = await collect_pty_output(
            output_chunks=running.output,
            output_lock=running.lock,
            output_notify=running.news,
            is_done=running.closed.is_set,
            yield_time_ms=milliseconds,
            max_output_tokens=tokens,
        )
        running.used = time.monotonic()
        if running.dropped:
            running.dropped = False
            output = DROPPED + output
        if not closed:
            return PtyExecUpdate(process_id=number, output=output, exit_code=None, original_token_count=count)
        self._running.pop(number, None)
        assert running.reader is not None
        await asyncio.wait((running.reader,))
        if running.reader.cancelled():  # by `end_all`, or to make room
            return PtyExecUpdate(process_id=None, output=output, exit_code=KILLED, original_token_count=count)
        end = own_end(running.reader.result(), self._calls.box.id)
        return PtyExecUpdate(
            process_id=None,
            output=output + DROPPED if end.truncated else output,
            exit_code=exit_code_of(end),
            original_token_count=count,
        )

    async def _make_room(self) -> None:
        if len(self._running) < PTY_PROCESSES_MAX:
            return
        number = process_id_to_prune_from_meta(
            [(number, each.used, each.closed.is_set()) for number, each in self._running.items()]
        )
        if number is not None:
            await _end([self._running.pop(number)])


async def _end(processes: Sequence[_Running]) -> None:
    """Cancel the readers, each of which then ends its command."""
    readers = [each.reader for each in processes if each.reader is not None]
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
