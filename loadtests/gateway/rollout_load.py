"""A raw load of rollouts: each caller creates a sandbox and deletes it, over one connection."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from loadtests.gateway.http_load import HttpCaller, LoadResult

_API = "/api/v1/sandbox"


class RolloutLoad:
    """Counts the calls of its callers. `creates` and `deletes`: seconds of each."""

    def __init__(self, host: str, port: int, *, key: str, body: bytes) -> None:
        """`body`: of each create."""
        self._where = host, port
        self._head = f"host: {host}:{port}\r\nauthorization: Bearer {key}\r\n"
        self._create = (
            f"POST {_API} HTTP/1.1\r\n{self._head}content-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        ).encode() + body
        self._creates, self._deletes = LoadResult(), LoadResult()

    @property
    def creates(self) -> list[float]:
        return self._creates.latencies

    @property
    def deletes(self) -> list[float]:
        return self._deletes.latencies

    @property
    def failures(self) -> int:
        return self._creates.failures + self._deletes.failures

    def clear(self) -> None:
        """Forget the seconds so far, not the failures."""
        self.creates.clear()
        self.deletes.clear()

    @asynccontextmanager
    async def callers(self, count: int, *, rate: float | None) -> AsyncIterator[None]:
        """Run this many callers, who together begin `rate` rollouts a second, or (None) pause never.

        A create of a late caller begins at once, and its time counts from when it was due.
        """
        loop = asyncio.get_running_loop()
        interval = None if rate is None else count / rate
        callers: list[_RolloutCaller] = []
        for _ in range(count):
            _, caller = await loop.create_connection(
                lambda: _RolloutCaller(self, interval=interval), *self._where
            )
            callers.append(caller)
        for caller in callers:
            caller.start()
        try:
            yield
        finally:
            for caller in callers:
                caller.stop()
            await asyncio.wait([caller.ended for caller in callers], timeout=10)
            for caller in callers:
                caller.transport.abort()

    def create_request(self) -> bytes:
        return self._create

    def delete_request(self, created: bytes) -> bytes:
        sandbox_id = created[created.index(b'"id":"') + 6 :].partition(b'"')[0].decode()
        return f"DELETE {_API}/{sandbox_id} HTTP/1.1\r\n{self._head}\r\n".encode()

    def created(self, seconds: float, *, status: bytes, body: bytes) -> bool:
        """Count a create's response; return whether it made a sandbox that runs."""
        runs = status == b"201" and b'"status":"RUNNING"' in body
        _count(self._creates, seconds, succeeded=runs)
        return runs

    def deleted(self, seconds: float, *, status: bytes) -> None:
        _count(self._deletes, seconds, succeeded=status == b"200")


def _count(result: LoadResult, seconds: float, *, succeeded: bool) -> None:
    if succeeded:
        result.latencies.append(seconds)
    else:
        result.failures += 1


class _RolloutCaller(HttpCaller):
    """Creates and deletes in turn."""

    def __init__(self, load: RolloutLoad, *, interval: float | None) -> None:
        super().__init__()
        self._load = load
        self._interval = interval
        self._running = False
        self._deletes = False  # the sandbox that it has created
        self._since = 0.0  # when its request was sent, or due
        self._due = 0.0  # when its rollout was due
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._running = True
        self._since = time.perf_counter() + random.random() * (self._interval or 0.0)
        self._wait()

    def stop(self) -> None:
        """Finish the rollout that has begun."""
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
            self.end()

    def _wait(self) -> None:
        self._due = self._since
        early = self._since - time.perf_counter()
        if early > 0:
            self._timer = asyncio.get_running_loop().call_later(early, self._create)
        else:
            self._create()

    def _create(self) -> None:
        self._timer = None
        self.transport.write(self._load.create_request())

    def answered(self, status: bytes, body: bytes) -> None:
        now = time.perf_counter()
        took = now - self._since
        if not self._deletes and self._load.created(took, status=status, body=body):
            self._deletes, self._since = True, now
            self.transport.write(self._load.delete_request(body))
            return
        if self._deletes:
            self._load.deleted(took, status=status)
        self._deletes = False
        if not self._running:
            self.end()
            return
        self._since = now if self._interval is None else self._due + self._interval
        self._wait()

    def lost(self) -> None:
        self._load.created(0.0, status=b"", body=b"")
