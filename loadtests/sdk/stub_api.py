"""A stub server for the SDK: accepts creates, and answers execs at once or in bursts without running them.

Prints its port when it listens. Execs are answered together every BURST seconds, so that a caller that sends 2,000
of them really has 2,000 in flight.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys

import httptools
import uvloop

BURST = 0.1
RESULT = json.dumps(
    {
        "stdout": "ok\n",
        "stderr": "",
        "exit_code": 0,
        "op_id": "op",
        "verdict": "exited",
        "signal": None,
        "truncated": False,
        "stdout_bytes": 3,
        "stderr_bytes": 0,
        "message": None,
        "usage": {"queued": 0.0, "wall": 0.01, "cpu": 0.004, "peak_memory": 9437184},
    }
).encode()


def answer(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Stub(asyncio.Protocol):
    """One connection, with sequential requests."""

    transport: asyncio.Transport
    held: list[Stub] = []  # noqa: RUF012 - one list for all connections, emptied by each burst
    port = 0
    most = 0

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._path = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._path = url

    def on_message_complete(self) -> None:
        if self._path.endswith(b"/exec"):
            Stub.held.append(self)
        elif self._path.endswith(b"/most-held"):
            self.transport.write(answer(json.dumps({"most": Stub.most}).encode()))
        else:
            self.transport.write(answer(json.dumps(sandbox(Stub.port)).encode()))


def sandbox(port: int) -> dict[str, object]:
    auth = {
        "token": "x" * 43,
        "gateway_url": f"http://127.0.0.1:{port}",
        "user_ns": "sbx",
        "job_id": "sb-1",
        "expires_at": "2100-01-01T00:00:00Z",
        "is_vm": False,
    }
    return {"id": "sb-1", "name": "stub", "status": "RUNNING", "gatewayAuth": auth, "labels": []}


async def main() -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = await loop.create_server(Stub, "127.0.0.1", 0, backlog=4096)
    Stub.port = server.sockets[0].getsockname()[1]
    print(Stub.port, flush=True)
    full = answer(RESULT)
    while not stop.is_set():
        await asyncio.sleep(BURST)
        Stub.most = max(Stub.most, len(Stub.held))
        waiting, Stub.held = Stub.held, []
        for connection in waiting:
            connection.transport.write(full)
    server.close()


if __name__ == "__main__":
    sys.exit(uvloop.run(main()))
