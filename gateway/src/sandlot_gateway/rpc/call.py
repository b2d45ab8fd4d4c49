"""Holds the state of one RPC: its sandbox, the way to its sidecar, and its response."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextvars import ContextVar
from typing import Any

from connectrpc.errors import ConnectError
from sandlot_contract.frames import END

from ..data.conn import Connection
from ..data.errors import UpstreamError
from ..data.frames import FrameReader, document
from ..data.pool import HttpPool
from ..data.request_gate import RequestGate
from ..data.routes import Route
from ..data.run_command import RunCommand
from ..data.sidecar_requests import SidecarRequests
from . import events, failures
from .characters import Characters
from .generated.command_session_pb2 import CommandSessionEvent
from .outbox import Outbox

# Seconds to wait for the rest of a character: an interactive user may have to answer what has come.
_REST = 0.1

current: ContextVar[Call] = ContextVar("current")


class Call(SidecarRequests):
    """The context of one request; Connect passes only the message to the service."""

    __slots__ = ("_outbox", "command", "request_gate", "timeout_ms", "verdict")

    def __init__(
        self,
        *,
        pool: HttpPool,
        request_gate: RequestGate,
        route: Route,
        outbox: Outbox,
        headers: list[tuple[bytes, bytes]],
        timeout_ms: int | None,
        command: RunCommand | None = None,
    ) -> None:
        super().__init__(pool=pool, route=route, headers=headers)
        self._outbox = outbox
        self.request_gate = request_gate
        self.timeout_ms = timeout_ms  # of Start: the command's time limit; None without one
        self.command = command  # of a Start, for the report of its run
        self.verdict = b""

    def refused(self, status: int, body: bytes) -> ConnectError:
        return failures.of_sidecar(status, body)

    @property
    def patience(self) -> float | None:
        """Seconds to wait for a connection.

        They are over before Connect's deadline: a command that never ran must not be reported as one that timed out.
        """
        return None if self.timeout_ms is None else self.timeout_ms / 1000

    async def json(self, method: str, target: str, *, json: Any = None) -> Any:
        """Send a request and return the answer's JSON. Raises ConnectError for an error status."""
        answer = await self.fetch(method, target, json=json)
        if answer.status != 200:
            raise self.refused(answer.status, answer.body)
        return answer.json()

    def close(self, connection: Connection) -> None:
        """Release the connection; one with unread frames is closed, which tells the sidecar."""
        self.pool.release(connection)

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
        yield self.end(document(last), session=session)

    def end(self, op: dict[str, Any], *, session: bool) -> CommandSessionEvent:
        """Return the end event of an op, and record its verdict for the metrics."""
        verdict = op.get("verdict")
        self.verdict = verdict.encode() if isinstance(verdict, str) else b""
        return events.end(op, session=session)
