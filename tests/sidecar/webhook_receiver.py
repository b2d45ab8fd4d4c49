"""The gateway's side of webhooks, which keeps the events that a sidecar has sent."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from pathlib import Path
from typing import Any

from tests.waiting import SECONDS

INSTANCE_TOKEN = "instance-token-of-a-test"


def proof(token: str = INSTANCE_TOKEN) -> str:
    """What shows that a gateway answers."""
    return hmac.new(token.encode(), b"webhook answer", hashlib.sha256).hexdigest()


class Receiver:
    """The gateway's side of webhooks: a real HTTP server on a Unix socket, or over TCP, that keeps what it was sent."""

    def __init__(self, path: str, *, host: str | None = None) -> None:
        self.path = path
        self.host = host
        self.port = 0
        self.events: list[dict[str, Any]] = []
        self.statuses: list[int] = []  # answers to give first
        self.status = 200  # and then
        self.proof = proof()
        self.verdict: str | None = None  # what they say of the sandbox
        self.answering = asyncio.Event()  # cleared, answers wait
        self.answering.set()
        self._changed = asyncio.Event()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        if self.host is not None:
            self._server = await asyncio.start_server(self._serve, self.host, self.port)
            self.port = self._server.sockets[0].getsockname()[1]
        else:
            self._server = await asyncio.start_unix_server(self._serve, self.path)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            if self.host is None:
                unlink(self.path)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
            body = await reader.readexactly(int(headers["Content-Length"]))
            wanted = "sha256=" + hmac.new(INSTANCE_TOKEN.encode(), body, hashlib.sha256).hexdigest()
            event = json.loads(body)
            event["headers"] = headers
            event["signed"] = hmac.compare_digest(headers["X-Sandlot-Signature"], wanted)
            event["received_at"] = time.monotonic()
            status = self.statuses.pop(0) if self.statuses else self.status
            event["answered"] = status
            self.events.append(event)
            self._changed.set()
            await self.answering.wait()
            verdict = "" if self.verdict is None else f"X-Sandlot-Verdict: {self.verdict}\r\n"
            shown = f"X-Sandlot-Gateway: {self.proof}\r\n"
            writer.write(f"HTTP/1.1 {status} X\r\n{shown}{verdict}Content-Length: 0\r\n\r\n".encode())
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    async def wait(self, event: str, *, count: int = 1, timeout: float = SECONDS) -> dict[str, Any]:
        """The `count`th event of a kind."""
        async with asyncio.timeout(timeout):
            while True:
                found = [item for item in self.events if item["event"] == event]
                if len(found) >= count:
                    return found[count - 1]
                self._changed.clear()
                await self._changed.wait()


def unlink(path: str) -> None:
    Path(path).unlink(missing_ok=True)
