"""Writes an HTTP answer: at once as JSON, or for a long call as an event stream that proxies do not take for dead."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from sandlot.integrations.mcp import wire
from sandlot.integrations.mcp.protocol import stateless_version
from sandlot.integrations.mcp.wire import Call, WireError

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_QUIET = 10.0  # seconds without a byte; load balancers cut idle connections after 60, some after 30
_PIECE = 64 << 10  # bytes; a server takes no more of an answer than one piece beyond what its client has read
_READ = 60.0  # seconds for a client to read an answer
_STATUS = {
    wire.PARSE_ERROR: 400,
    wire.INVALID_REQUEST: 400,
    wire.HEADER_MISMATCH: 400,
    wire.UNSUPPORTED_VERSION: 400,
}
_STATELESS_STATUS = {**_STATUS, wire.INVALID_PARAMS: 400, wire.METHOD_NOT_FOUND: 404}


def _none() -> dict[str, str]:
    return {}


@dataclass(frozen=True)
class Answer:
    """A status with a JSON-RPC message, also one that is encoded already, or with a text for people."""

    status: int
    _: KW_ONLY
    document: dict[str, Any] | None = None
    encoded: bytes = b""
    text: str = ""
    headers: Mapping[str, str] = field(default_factory=_none)

    @property
    def message(self) -> bytes:
        """Return the JSON-RPC message, or b"" without one."""
        return self.encoded or (b"" if self.document is None else wire.encode(self.document))


def status_of(error: WireError, call: Call | None) -> int:
    """Return the HTTP status of an error: before 2026-07-28 only a bad message had one of its own."""
    is_stateless = call is not None and stateless_version(call) is not None
    return (_STATELESS_STATUS if is_stateless else _STATUS).get(error.code, 200)


async def respond(send: Send, answer: Answer, *, read_within: float = _READ) -> None:
    message = answer.message
    body = message or answer.text.encode()
    kind = "application/json" if message else "text/plain; charset=utf-8"
    headers = {"content-type": kind, "content-length": str(len(body)), "cache-control": "no-store"}
    if not body:
        del headers["content-type"]
    if answer.status == 204:
        del headers["content-length"]
    await _begin(send, answer.status, {**headers, **answer.headers})
    await _write(send, body, seconds=read_within)


async def _write(send: Send, body: bytes, *, seconds: float) -> None:
    """Write the end of an answer; return before it if the client does not read, and the server cuts the connection."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            for begin in range(0, len(body) or 1, _PIECE):
                more = begin + _PIECE < len(body)
                piece = body[begin : begin + _PIECE]
                await send({"type": "http.response.body", "body": piece, "more_body": more})


async def keep_open(
    task: asyncio.Future[Answer],
    receive: Receive,
    send: Send,
    *,
    call: Call,
    headers: Mapping[str, str],
    accepts_stream: bool,
    quiet: float = _QUIET,
    read_within: float = _READ,
) -> None:
    """Write the answer of `task`, and cancel it if the client goes first: no client could ask for its result again."""
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        await _wait(task, gone, seconds=quiet if accepts_stream else None)
        if task.done():
            await respond(send, replace(_answer_of(task, call), headers=headers), read_within=read_within)
        elif not gone.done():
            stream = {"content-type": "text/event-stream", "cache-control": "no-store, no-transform"}
            await _begin(send, 200, {**stream, "x-accel-buffering": "no", **headers})
            while not task.done() and not gone.done():
                await send({"type": "http.response.body", "body": b": running\n\n", "more_body": True})
                await _wait(task, gone, seconds=quiet)
            if task.done():
                await _write(
                    send,
                    b"event: message\ndata: %b\n\n" % _answer_of(task, call).message,
                    seconds=read_within,
                )
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait({task})


def _answer_of(task: asyncio.Future[Answer], call: Call) -> Answer:
    if task.cancelled():
        error = WireError(wire.CANCELLED, "the client cancelled the request")
        return Answer(200, document=wire.error_of(error, call.id))
    return task.result()


async def _wait(task: asyncio.Future[Answer], gone: asyncio.Future[None], *, seconds: float | None) -> None:
    await asyncio.wait({task, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _begin(send: Send, status: int, headers: Mapping[str, str]) -> None:
    lines = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": lines})
