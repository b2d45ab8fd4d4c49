"""A relay in front of a registry: counts the bytes that it sends, and can send so many a second at most, or none."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

_CHUNK = 256 << 10


class Relay:
    """Forwards connections in a loop of its own. `sent`: how many bytes went from the registry to its clients."""

    def __init__(self, upstream: str, *, rate: float) -> None:
        self.sent = 0
        host, _, port = upstream.rpartition(":")
        self._upstream = (host, int(port))
        self._rate = rate
        self._next = 0.0  # when the next chunk may be sent, by the loop's clock
        self._hold_at = math.inf  # `sent` after which nothing more is
        self._open, self._end = asyncio.Event(), asyncio.Event()
        self._open.set()
        self._loop: Future[asyncio.AbstractEventLoop] = Future()
        self._handlers: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def serve(self, listening: Future[int]) -> None:
        """Forward until `end`; `listening` gets the port."""
        try:
            server = await asyncio.start_server(self._connected, self._upstream[0], 0, limit=_CHUNK)
        except OSError as error:
            listening.set_exception(error)
            return
        self._loop.set_result(asyncio.get_running_loop())
        listening.set_result(server.sockets[0].getsockname()[1])
        await self._end.wait()
        server.close()
        # A handler that is cancelled instead is logged as an error by asyncio's streams.
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*self._handlers)

    # Called by other threads.

    def end(self) -> None:
        self._call(self._end.set)

    @contextmanager
    def held(self, *, after: int = 0) -> Iterator[None]:
        """Send nothing until the block ends, once `after` bytes more and what is on its way then are sent."""

        def hold() -> None:
            self._hold_at = self.sent + after
            self._look()

        def release() -> None:
            self._hold_at = math.inf
            self._open.set()

        self._call(hold)
        try:
            yield
        finally:
            self._call(release)

    def _look(self) -> None:
        if self.sent >= self._hold_at:
            self._open.clear()

    def _call(self, change: Callable[[], None]) -> None:
        done: Future[None] = Future()
        self._loop.result(30).call_soon_threadsafe(lambda: done.set_result(change()))
        done.result(30)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = asyncio.create_task(self._forward(reader, writer))
        self._handlers.add(handler)
        handler.add_done_callback(self._handlers.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = {writer}
        self._writers |= writers
        try:
            there, back = await asyncio.open_connection(*self._upstream, limit=_CHUNK)
            writers.add(back)
            self._writers.add(back)
            await asyncio.gather(self._copy(reader, back), self._copy(there, writer, limited=True))
        except OSError:
            return  # one side has closed its connection, so the other's is closed, too
        finally:
            for each in writers:
                each.close()
            self._writers -= writers

    async def _copy(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, limited: bool = False
    ) -> None:
        try:
            while data := await source.read(_CHUNK):
                if limited:
                    await self._turn(len(data))
                    self.sent += len(data)
                    self._look()
                target.write(data)
                await target.drain()
        finally:
            target.close()

    async def _turn(self, size: int) -> None:
        """Wait until so many bytes may be sent; all connections share the rate."""
        await self._open.wait()
        now = asyncio.get_running_loop().time()
        self._next = max(now, self._next) + size / self._rate
        await asyncio.sleep(self._next - now)


@contextmanager
def relay(upstream: str, *, rate: float = math.inf) -> Iterator[tuple[Relay, str]]:
    """Forward to `upstream` (host:port) in a thread until the block ends; give the relay and its address.

    `rate`: bytes a second that it sends to all its clients together.
    """
    made = Relay(upstream, rate=rate)
    listening: Future[int] = Future()
    thread = threading.Thread(target=lambda: asyncio.run(made.serve(listening)), name="relay")
    thread.start()
    port = listening.result(30)
    try:
        yield made, f"{upstream.rpartition(':')[0]}:{port}"
    finally:
        made.end()
        thread.join(30)
