"""Serves one client over standard input and output, a JSON-RPC message on each line, until the input ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable

from sandlot._async.client import AsyncClient
from sandlot.errors import SandlotError
from sandlot.integrations.mcp import wire
from sandlot.integrations.mcp.protocol import answer
from sandlot.integrations.mcp.session import Session
from sandlot.integrations.mcp.wire import Call, RequestId, WireError

MOST_LINE = 4 << 20  # bytes of one message
_MOST_CALLS = 64  # at once
_CUT = 2.0  # seconds for cancelled calls to end

Send = Callable[[bytes], None]


class StdioServer:
    """The requests of one client that run, and its session."""

    def __init__(self, session: Session, *, send: Send) -> None:
        self._session = session
        self._send = send
        self._running: dict[RequestId, asyncio.Task[None]] = {}

    def receive(self, line: bytes) -> None:
        """Begin with one message."""
        if not line.strip():
            return
        try:
            call = wire.parse(line)
            if call.id is None:
                self._notified(call)
            elif call.is_answer:
                return
            elif call.id in self._running:
                raise WireError(wire.INVALID_REQUEST, "id: a request with this id is running", id=call.id)
            elif len(self._running) >= _MOST_CALLS:
                raise WireError(
                    wire.BUSY, f"{_MOST_CALLS} requests are running: wait for one of them", id=call.id
                )
            else:
                self._running[call.id] = asyncio.create_task(self._answer(call))
        except WireError as error:
            self._write(wire.error_of(error))

    def refuse_long(self) -> None:
        """Answer a line that is too long, whose id is not known."""
        self._write(
            wire.error_of(WireError(wire.INVALID_REQUEST, f"a message has more than {MOST_LINE} bytes"))
        )

    async def end(self, *, keep: bool) -> None:
        """Cancel what runs, and delete the session's sandboxes unless they are kept. Raises SandlotError, TimeoutError."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CUT)
        if self._session.used and not keep:
            await self._session.end()

    def _notified(self, call: Call) -> None:
        identity = call.params.get("requestId")
        if call.method == "notifications/cancelled" and isinstance(identity, str | int):
            task = self._running.get(identity)
            if task is not None:
                task.cancel()

    async def _answer(self, call: Call) -> None:
        assert call.id is not None
        try:
            self._write(wire.result_of(call.id, await answer(call, self._session)))
        except WireError as error:
            self._write(wire.error_of(error, call.id))
        finally:
            # A cancelled request gets no answer.
            del self._running[call.id]

    def _write(self, message: dict[str, object]) -> None:
        self._send(wire.encode(message) + b"\n")


async def serve(*, client: AsyncClient, image: str | None, keep: bool) -> int:
    """Serve until the input ends or a signal comes; return the exit code."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[bytes | None] = asyncio.Queue()
    output = _Output()
    server = StdioServer(Session(client=client, id=os.urandom(8).hex(), image=image), send=output.put)
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(number, lines.put_nowait, None)
    # Not a task: reading a file, a terminal or a pipe alike may block, also the end of this process.
    threading.Thread(target=_read, args=(loop, lines), daemon=True).start()
    output.start()
    try:
        while (line := await lines.get()) is not None:
            if len(line) > MOST_LINE:
                server.refuse_long()
            else:
                server.receive(line)
    finally:
        try:
            await server.end(keep=keep)
        except (SandlotError, TimeoutError) as error:
            print(f"sandlot: the session's sandboxes may live until their timeouts: {error}", file=sys.stderr)
    return 0


class _Output:
    """Writes lines in a thread, since a client that does not read must not stop the others' calls."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._some = threading.Condition()

    def start(self) -> None:
        threading.Thread(target=self._write, daemon=True).start()

    def put(self, line: bytes) -> None:
        with self._some:
            self._lines.append(line)
            self._some.notify()

    def _write(self) -> None:
        while True:
            with self._some:
                self._some.wait_for(lambda: self._lines)
                data = memoryview(b"".join(self._lines))
                self._lines.clear()
            try:
                while data:
                    data = data[os.write(1, data) :]
            except OSError:  # the client is gone, and its input ends, too
                return


def _read(loop: asyncio.AbstractEventLoop, lines: asyncio.Queue[bytes | None]) -> None:
    """Put each line of standard input into the queue, then None; of one that is too long only the begin."""
    rest = bytearray()
    with contextlib.suppress(RuntimeError):  # the loop is closed
        while data := _some_input():
            begin = len(rest)
            rest += data
            while (end := rest.find(b"\n", begin)) >= 0:
                loop.call_soon_threadsafe(lines.put_nowait, bytes(rest[: min(end, MOST_LINE + 1)]))
                del rest[: end + 1]
                begin = 0
            del rest[MOST_LINE + 1 :]
        loop.call_soon_threadsafe(lines.put_nowait, None)


def _some_input() -> bytes:
    # Not sys.stdin: Python's end would wait for the lock of its buffer.
    try:
        return os.read(0, 1 << 16)
    except OSError:
        return b""
