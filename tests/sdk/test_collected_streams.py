"""A stream that was left is collected in whatever thread runs then, also in one that has the pool's lock."""

from __future__ import annotations

import gc
import threading
from contextlib import AbstractContextManager
from types import TracebackType

import pytest
from sandlot import Client, Sandbox

from tests.sdk.service.server import Service

pytestmark = pytest.mark.timeout(60)


class Collecting(AbstractContextManager[None]):
    """The lock, whose owner collects garbage, as any allocation may."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        self._lock.acquire()
        gc.collect()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


def test_a_stream_that_is_collected_in_a_thread_with_the_lock_stops_nothing(service: Service) -> None:
    with Client(url=service.url, api_key=service.api_key) as client, Sandbox.create(client=client) as box:
        stream = box.exec("echo begun; sleep 60", stream=True)
        assert next(stream)
        assert stream._body is not None
        connection = stream._body._connection
        (pool,) = client.transport._pools.values()
        cycle: list[object] = [stream]
        cycle.append(cycle)
        lock = pool._lock
        gc.disable()
        try:
            del stream, cycle
            pool._lock = Collecting(lock)  # type: ignore[assignment]
            call = threading.Thread(target=lambda: box.files.exists("/tmp"), daemon=True)
            call.start()
            call.join(20)
            assert not call.is_alive()
        finally:
            gc.enable()
            pool._lock = lock
        assert connection.sock.fileno() == -1
        assert connection in pool.open
        box.files.exists("/tmp")
        assert connection not in pool.open
