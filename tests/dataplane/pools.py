"""HTTP pools that give up quickly where nobody answers, a counter of their dials, and a short answer."""

from __future__ import annotations

import pytest
from sandlot_gateway.data.connection_queue import ConnectionQueueSettings
from sandlot_gateway.data.dial import DialSettings
from sandlot_gateway.data.pool import HttpPool, PoolSettings
from sandlot_gateway.metrics import DialResult

# An attempt has long: on a loaded machine one that succeeds is late.
QUICK = DialSettings(timeout=10.0, first_timeout=10.0, backoff=0.001, max_backoff=0.01)
SHORT = ConnectionQueueSettings(
    refused_for=0.1, refused_for_others=0.01, silent_for=0.5, silent_for_others=0.2
)


class Dials:
    def __init__(self) -> None:
        self.ok = 0
        self.failed = 0
        self.refused = 0

    def dialled(self, result: DialResult) -> None:
        setattr(self, result, getattr(self, result) + 1)


@pytest.fixture
def pool(stack):
    def make(**settings) -> HttpPool:
        pool = HttpPool(settings=PoolSettings(**{"dial": QUICK, "line": SHORT, **settings}))
        stack.push_async_callback(pool.close)
        return pool

    return make


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
