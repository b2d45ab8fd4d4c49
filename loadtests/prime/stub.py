"""A stub server for Prime's clients that responds at once: the client's own time from create to first output.

Prints its port when it listens. Every sandbox is RUNNING when it is created and every command prints "ready".
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from itertools import count
from typing import Any

import httptools
import uvloop
from sandlot_gateway.rpc.generated.command_session_pb2 import CommandSessionEvent, StartResponse

_numbers = count(1)
_Event = CommandSessionEvent
_AT = "2026-01-01T00:00:00Z"


def _envelope(flags: int, body: bytes) -> bytes:
    return bytes([flags]) + len(body).to_bytes(4, "big") + body


def _session() -> bytes:
    """Return the stream of `CommandSession/Start` for `echo ready`."""
    events = (
        _Event(start=_Event.StartEvent(pid=7)),
        _Event(data=_Event.DataEvent(stdout=b"ready\n")),
        _Event(end=_Event.EndEvent(exit_code=0, exited=True, status="exit status 0")),
    )
    messages = b"".join(_envelope(0, StartResponse(event=event).SerializeToString()) for event in events)
    return messages + _envelope(2, b"{}")


SESSION = _session()


def _answer(body: bytes, *, kind: str = "application/json") -> bytes:
    return f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


class Stub(asyncio.Protocol):
    """One connection, with sequential requests."""

    transport: asyncio.Transport
    port = 0

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._path = b""
        self._body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._path = self._body = b""

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        path, method = self._path.decode(), self._parser.get_method()
        if path.endswith("/Start"):
            self.transport.write(_answer(SESSION, kind="application/connect+proto"))
            return
        document: dict[str, Any]
        if path.endswith("/exec"):
            document = {"stdout": "ready\n", "stderr": "", "exit_code": 0}
        elif path.endswith("/status:batchGet"):
            ids = json.loads(self._body)["sandbox_ids"]
            document = {"statuses": [{"sandbox_id": each, "status": "RUNNING"} for each in ids], "errors": []}
        elif method == b"DELETE":
            document = {"success": True, "message": "deleted"}
        elif path.endswith("/auth"):
            document = _auth(path.split("/")[-2])
        elif method == b"POST":
            document = _sandbox(f"sb-{next(_numbers):08x}")
        else:
            document = _sandbox(path.split("/")[-1])
        self.transport.write(_answer(json.dumps(document).encode()))


def _auth(sandbox_id: str) -> dict[str, Any]:
    return {
        "token": "x" * 43,
        "gateway_url": f"http://127.0.0.1:{Stub.port}",
        "user_ns": "sbx",
        "job_id": sandbox_id,
        "expires_at": "2100-01-01T00:00:00Z",
        "is_vm": False,
    }


def _sandbox(sandbox_id: str) -> dict[str, Any]:
    resources = {"cpuCores": 1.0, "memoryGB": 1.0, "diskSizeGB": 5.0, "diskMountPath": "/", "gpuCount": 0}
    times = {"timeoutMinutes": 60, "createdAt": _AT, "updatedAt": _AT, "startedAt": _AT}
    return {
        "id": sandbox_id,
        "name": "stub",
        "dockerImage": "host",
        "status": "RUNNING",
        "vm": False,
        "labels": [],
        "networkAccess": True,
        "gatewayAuth": _auth(sandbox_id),
        **resources,
        **times,
    }


async def main() -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = await loop.create_server(Stub, "127.0.0.1", 0, backlog=128)
    Stub.port = server.sockets[0].getsockname()[1]
    print(Stub.port, flush=True)
    await stop.wait()
    server.close()


if __name__ == "__main__":
    sys.exit(uvloop.run(main()))
