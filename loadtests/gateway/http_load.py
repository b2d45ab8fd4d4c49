"""A raw HTTP/1.1 load generator: open connections, one request in flight on each, latencies by request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle


@dataclass
class LoadResult:
    """Result of a run; latencies in seconds, in the order of the responses."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    failures: int = 0

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds

    def percentile(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


class HttpCaller(asyncio.Protocol):
    """One connection with one request in flight; `answered` gets each response (Content-Length only)."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.ended = asyncio.get_running_loop().create_future()
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def answered(self, status: bytes, body: bytes) -> None:
        raise NotImplementedError

    def lost(self) -> None:
        """Note that the connection has ended before its last response."""
        raise NotImplementedError

    def data_received(self, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
            self._buffer = b""
        head_end = data.find(b"\r\n\r\n")
        if head_end < 0:
            self._buffer = data
            return
        at = data.lower().find(b"content-length:", 0, head_end)
        length = int(data[at + 15 : data.find(b"\r\n", at)])
        if len(data) < head_end + 4 + length:
            self._buffer = data
            return
        self.answered(data[9:12], data[head_end + 4 :])

    def end(self) -> None:
        """Note that no response is awaited any more."""
        if not self.ended.done():
            self.ended.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.lost()
            self.end()


class _Caller(HttpCaller):
    """Sends the next request as soon as the last response is complete."""

    def __init__(self, requests: Iterator[bytes], result: LoadResult) -> None:
        super().__init__()
        self._requests = requests
        self._result = result
        self._sent_at = 0.0
        self.running = False

    def start(self) -> None:
        self.running = True
        self._next()

    def _next(self) -> None:
        self._sent_at = time.perf_counter()
        self.transport.write(next(self._requests))

    def answered(self, status: bytes, body: bytes) -> None:
        if status == b"200":
            self._result.latencies.append(time.perf_counter() - self._sent_at)
        else:
            self._result.failures += 1
        if self.running:
            self._next()
        else:
            self.end()

    def lost(self) -> None:
        self._result.failures += 1


async def load(
    targets: list[tuple[str, int]], requests: list[list[bytes]], *, seconds: float, warm_up: float
) -> LoadResult:
    """Open one connection for each target, and cycle through its list of requests on it."""
    loop = asyncio.get_running_loop()
    result = LoadResult()
    callers: list[_Caller] = []
    for (host, port), own in zip(targets, requests, strict=True):
        _, caller = await loop.create_connection(lambda own=own: _Caller(cycle(own), result), host, port)
        callers.append(caller)
    for caller in callers:
        caller.start()
    await asyncio.sleep(warm_up)
    result.latencies.clear()
    result.failures = 0
    since = time.perf_counter()
    await asyncio.sleep(seconds)
    result.seconds = time.perf_counter() - since
    latencies = list(result.latencies)
    for caller in callers:
        caller.running = False
    await asyncio.wait([caller.ended for caller in callers], timeout=10)
    for caller in callers:
        caller.transport.abort()
    result.latencies = latencies
    return result
