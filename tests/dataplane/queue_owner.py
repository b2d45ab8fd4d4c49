"""`Owner` plays the pool for the lines of the upstreams, `Script` plays their dials."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from sandlot_gateway.data.conn import Connection
from sandlot_gateway.data.connection_queue import ConnectionQueueSettings
from sandlot_gateway.data.connection_queues import ConnectionQueues
from sandlot_gateway.data.dial import DialSettings, dial
from sandlot_gateway.data.errors import DialError
from sandlot_gateway.metrics import DialResult

QUICK = DialSettings(timeout=1.0, first_timeout=0.125, backoff=0.001, max_backoff=0.002)
KEY = "10.0.0.7:8700"


class Owner:
    """What the pool does with its lines: it counts, and keeps what nobody waits for."""

    def __init__(self, **settings: float) -> None:
        self.kept: list[Connection] = []
        self.dialled: list[DialResult] = []
        self.lines = ConnectionQueues(
            settings=ConnectionQueueSettings(**settings),  # type: ignore[arg-type]
            dialling=QUICK,
            free=self.free,
            dialled=self.dialled.append,
        )

    def free(self, connection: Connection) -> None:
        if not self.lines.serve(connection):
            self.kept.append(connection)

    def wait(
        self,
        dial_with: Callable[[], Awaitable[Connection]],
        *,
        known_alive: bool = True,
        starting: bool = False,
    ):
        return asyncio.create_task(
            self.lines.wait(KEY, dial_with, known_alive=known_alive, starting=starting)
        )


@pytest.fixture
def owner(stack):
    def make(**settings: float) -> Owner:
        one = Owner(**settings)
        stack.push_async_callback(one.lines.close)
        stack.callback(lambda: [connection.close() for connection in one.kept])
        return one

    return make


class Script:
    """Dials of which each does the next of these: connects, or raises."""

    def __init__(self, *ends: str | Exception) -> None:
        self.ends = list(ends)
        self.made = 0

    async def __call__(self) -> Connection:
        end = self.ends[min(self.made, len(self.ends) - 1)]
        self.made += 1
        if isinstance(end, Exception):
            raise end
        return await dial(end, timeout=10.0)


def refused() -> DialError:
    return DialError(KEY, "connection refused", refused=True, nothing_listens=True)
