"""The relay in front of a registry: bytes arrive whole, are counted, and come at its rate or not at all."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.cluster.relay import relay
from tests.waiting import wait_until

BODY = bytes(range(256)) * 4096  # 1 MiB


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def fetched(address: str) -> bytes:
    connection = http.client.HTTPConnection(address, timeout=30)
    try:
        connection.request("GET", "/")
        return connection.getresponse().read()
    finally:
        connection.close()


def test_what_passes_is_counted(upstream: str) -> None:
    with relay(upstream) as (made, address):
        assert [fetched(address) for _ in range(2)] == [BODY, BODY]
        assert 2 * len(BODY) < made.sent < 2 * len(BODY) + 1000


def test_it_sends_no_more_than_its_rate(upstream: str) -> None:
    with relay(upstream, rate=len(BODY)) as (_, address):
        begun = time.monotonic()
        assert fetched(address) == BODY
        assert time.monotonic() - begun >= 1.0


def test_nothing_is_sent_while_it_is_held(upstream: str) -> None:
    with relay(upstream) as (made, address):
        found: list[bytes] = []
        thread = threading.Thread(target=lambda: found.append(fetched(address)))
        with made.held():
            thread.start()
            thread.join(0.5)
            assert (found, made.sent) == ([], 0)
        thread.join(30)
        assert found == [BODY]


def test_it_holds_itself_after_so_many_bytes(upstream: str) -> None:
    with relay(upstream) as (made, address):
        found: list[bytes] = []
        thread = threading.Thread(target=lambda: found.append(fetched(address)))
        with made.held(after=1000):
            thread.start()
            wait_until(lambda: made.sent >= 1000)
            thread.join(0.5)
            assert found == []
            assert made.sent < len(BODY)
        thread.join(30)
        assert found == [BODY]


def test_a_registry_that_is_away_closes_the_connection() -> None:
    with relay("127.0.0.1:1") as (_, address), pytest.raises((OSError, http.client.HTTPException)):
        fetched(address)
