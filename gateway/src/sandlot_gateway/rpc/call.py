"""Holds the state of one RPC: its sandbox, the way to its sidecar, and its response."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextvars import ContextVar
from typing import Any

import msgspec
from sandlot_contract.frames import END

from ..data.conn import Connection
from ..data.errors import UpstreamError
from ..data.frames import FrameReader
from ..data.outgoing import host_header, request_bytes
from ..data.pool import Answer, HttpPool
from ..data.request_gate import RequestGate
from ..data.routes import Route
from . import events, failures
from .characters import Characters
from .generated.command_session_pb2 import CommandSessionEvent
from .outbox import Outbox

_ERROR_BODY = 64 * 1024
# Seconds to wait for the rest of a character: an interactive user may have to answer what has come.
_REST = 0.1

current: ContextVar[Call] = ContextVar("current")


class Call:
    """The context of one request; Connect passes only the message to the service."""

    __slots__ = ("_headers", "_outbox", "_pool", "request_gate", "route", "timeout_ms", "verdict")

    def __init__(
        self,
        *,
        pool: HttpPool,
        request_gate: RequestGate,
        route: Route,
        outbox: Outbox,
        headers: list[tuple[bytes, bytes]],
        timeout_ms: int | None,
    ) -> None:
        self._pool = pool
        self._outbox = outbox
        self._headers = [(b"authorization", b"Bearer " + route.token.encode()), *headers]
        self.request_gate = request_gate
        self.route = route
        self.timeout_ms = timeout_ms  # of Start: the command's time limit; None without one
        self.verdict = b""

    async def fetch(
        self, method: str, target: str, *, json: Any = None, body: bytes = b"", timeout: float = 3600.0
    ) -> Answer:
        """Send a request to the sidecar and return its answer, whatever the status."""
        return await self._pool.fetch(
            self.route.address,
            method,
            target,
            headers=self._headers,
            body=body if json is None else msgspec.json.encode(json),
            timeout=timeout,
            known_alive=True,
        )

    async def json(self, method: str, target: str, *, json: Any = None) -> Any:
        """Send a request and return the answer's JSON. Raises ConnectError for an error status."""
        answer = await self.fetch(method, target, json=json)
        if answer.status != 200:
            raise failures.of_sidecar(answer.status, answer.body)
        return answer.json()

    async def open(self, method: str, target: str, *, json: Any = None) -> Connection:
        """Open a stream of an op's frames, to be closed with `close`. Raises ConnectError, DialError, UpstreamError."""
        body = b"" if json is None else msgspec.json.encode(json)
        address = self.route.address
        data = request_bytes(method, target, host=host_header(address), headers=self._headers, body=body)
        # Expires before Connect's deadline: a command that never ran must not be reported as one that timed out.
        patience = None if self.timeout_ms is None else self.timeout_ms / 1000
        connection = await self._pool.acquire(address, known_alive=True, timeout=patience)
        try:
            connection.begin(data)
            response = await connection.head()
            if response.status != 200:
                error = b""
                while len(error) < _ERROR_BODY and (piece := await connection.read()):
                    error += piece
                raise failures.of_sidecar(response.status, error)
        except BaseException:
            self.close(connection)
            raise
        return connection

    def close(self, connection: Connection) -> None:
        """Release the connection; one with unread frames is closed, which tells the sidecar."""
        self._pool.release(connection)

    async def events(
        self, connection: Connection, *, pty: bool, session: bool, has_input: bool
    ) -> AsyncGenerator[CommandSessionEvent, None]:
        """Yield the op's events to its end. Raises ConnectError for an end that is not the command's own."""
        reader, characters = FrameReader(), Characters()
        last: bytes | None = None
        while True:
            if connection.waits:
                await self._outbox.flush()
            patience = _REST if characters.waiting and (has_input or pty) else None
            try:
                async with asyncio.timeout(patience):
                    data = await connection.read()
            except TimeoutError:
                for kind, payload in characters.rest():
                    yield events.of_output(kind, payload, pty=pty)
                continue
            if not data:
                break
            for kind, payload in reader.feed(data):
                if kind == END:
                    last = payload
                elif kind in events.OUTPUT:
                    if whole := characters.feed(kind, payload):
                        yield events.of_output(kind, whole, pty=pty)
                elif (event := events.of_frame(kind, payload)) is not None:
                    yield event
        for kind, payload in characters.rest():
            yield events.of_output(kind, payload, pty=pty)
        if last is None:
            raise UpstreamError("the op's stream closed before its end frame")
        yield self.end(events.document(last), session=session)

    def end(self, op: dict[str, Any], *, session: bool) -> CommandSessionEvent:
        """Return the end event of an op, and record its verdict for the metrics."""
        verdict = op.get("verdict")
        self.verdict = verdict.encode() if isinstance(verdict, str) else b""
        return events.end(op, session=session)
