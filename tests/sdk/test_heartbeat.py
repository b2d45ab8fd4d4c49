"""The thread that renews a run goes to another gateway than one that cannot."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from sandlot._sync.client import Client
from sandlot._sync.heartbeat import Heartbeat
from sandlot.endpoint import endpoint
from sandlot.runs import RunInfo

from tests.waiting import wait_until


class Gateways(ThreadingHTTPServer):
    """Behind one address: the first connection is to a gateway without an API server, the others are not."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.connections: list[object] = []
        self.statuses: Counter[int] = Counter()


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def gateways(self) -> Gateways:
        assert isinstance(self.server, Gateways)
        return self.server

    def setup(self) -> None:
        super().setup()
        self.gateways.connections.append(self)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        status = 503 if self is self.gateways.connections[0] else 200
        self.gateways.statuses[status] += 1
        self.send_response(status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def gateways() -> Iterator[Gateways]:
    with Gateways() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_a_renewal_that_fails_is_repeated_through_another_connection(gateways: Gateways) -> None:
    server = endpoint(url=f"http://127.0.0.1:{gateways.server_address[1]}", api_key="k")
    heartbeat = Heartbeat(server, RunInfo(id="r", epoch=1, grace=0.5), on_lost=None)
    heartbeat.start()
    try:
        wait_until(lambda: gateways.statuses[200] >= 2)
    finally:
        heartbeat.stop(timeout=10.0)
    assert heartbeat.lost is None


def test_an_unforeseen_failure_of_one_renewal_does_not_end_the_run(
    gateways: Gateways, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = endpoint(url=f"http://127.0.0.1:{gateways.server_address[1]}", api_key="k")
    failures = [ValueError("a proxy's answer that is no JSON")]
    call = Client.call

    def failing(self: Client, *args: Any, **kwargs: Any) -> Any:
        if failures:
            raise failures.pop()
        return call(self, *args, **kwargs)

    monkeypatch.setattr(Client, "call", failing)
    heartbeat = Heartbeat(server, RunInfo(id="r", epoch=1, grace=0.5), on_lost=None)
    heartbeat.start()
    try:
        wait_until(lambda: gateways.statuses[200] >= 1)
    finally:
        heartbeat.stop(timeout=10.0)
