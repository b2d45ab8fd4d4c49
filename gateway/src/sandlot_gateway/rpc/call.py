"""One RPC on its way: which sandbox it is for, how its sidecar is reached, where its answer goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextvars import ContextVar
from typing import Any

import msgspec
from sandlot_contract.frames import END

from ..data.conn import Connection
from ..data.door import Door
from ..data.errors import UpstreamError
from ..data.frames import FrameReader
from ..data.pool import Answer, HttpPool, host_header, request_bytes
from ..data.routes import Route
from . import events, failures
from .characters import Characters
from .generated.command_session_pb2 import CommandSessionEvent
from .outbox import Outbox

_ERROR_BODY = 64 * 1024
# Seconds for the rest of a character from a command that somebody talks to, who may have to answer what has come.
_REST = 0.1

current: ContextVar[Call] = ContextVar("current")


class Call:
    """What the service needs of one request; Connect passes on only the message."""

    __slots__ = ("_headers", "_outbox", "_pool", "door", "route", "timeout_ms", "verdict")

    def __init__(
        self,
        *,
        pool: HttpPool,
        door: Door,
        route: Route,
        outbox: Outbox,
        headers: list[tuple[bytes, bytes]],
        timeout_ms: int | None,
    ) -> None:
        self._pool = pool
        self._outbox = outbox
        self._headers = [(b"authorization", b"Bearer " + route.token.encode()), *headers]
        self.door = door
        self.route = route
        self.timeout_ms = timeout_ms  # of Start: the command's time limit
        self.verdict = b""

    async def fetch(
        self, method: str, target: str, *, json: Any = None, body: bytes = b"", timeout: float = 3600.0
    ) -> Answer:
        """One small exchange with the sidecar, whatever its status."""
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
        """The answer's JSON; raises ConnectError when it is no success."""
        answer = await self.fetch(method, target, json=json)
        if answer.status != 200:
            raise failures.of_sidecar(answer.status, answer.body)
        return answer.json()

    async def open(self, method: str, target: str, *, json: Any = None) -> Connection:
        """A connection on which an op's frames come; `close` it. Raises ConnectError, DialError, UpstreamError."""
        body = b"" if json is None else msgspec.json.encode(json)
        address = self.route.address
        data = request_bytes(method, target, host=host_header(address), headers=self._headers, body=body)
        # A command that never ran must not be told as one that took too long: this ends before Connect's deadline.
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
        """Give it back; one with frames still to come is closed, which is how the sidecar learns it."""
        self._pool.release(connection)

    async def events(
        self, connection: Connection, *, pty: bool, session: bool, has_input: bool
    ) -> AsyncGenerator[CommandSessionEvent, None]:
        """The op's events to its end. Raises ConnectError for an end that is not the command's own."""
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
            raise UpstreamError("the op's stream ended without its end")
        yield self.end(events.document(last), session=session)

    def end(self, op: dict[str, Any], *, session: bool) -> CommandSessionEvent:
        """The event of an op's end, whose verdict is the request's in the metrics."""
        verdict = op.get("verdict")
        self.verdict = verdict.encode() if isinstance(verdict, str) else b""
        return events.end(op, session=session)
