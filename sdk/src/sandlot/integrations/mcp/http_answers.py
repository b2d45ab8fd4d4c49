"""Writes an HTTP answer: at once as JSON, or for a long call as an event stream that proxies do not take for dead."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from sandlot.integrations.mcp import wire
from sandlot.integrations.mcp.protocol import stateless_version
from sandlot.integrations.mcp.wire import Call, WireError

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_QUIET = 10.0  # seconds without a byte; load balancers cut idle connections after 60, some after 30
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
    """A status with a JSON-RPC message, or with a text for people."""

    status: int
    _: KW_ONLY
    document: dict[str, Any] | None = None
    text: str = ""
    headers: Mapping[str, str] = field(default_factory=_none)


def status_of(error: WireError, call: Call | None) -> int:
    """Return the HTTP status of an error: before 2026-07-28 only a bad message had one of its own."""
    is_stateless = call is not None and stateless_version(call) is not None
    return (_STATELESS_STATUS if is_stateless else _STATUS).get(error.code, 200)


async def respond(send: Send, answer: Answer) -> None:
    body = answer.text.encode() if answer.document is None else wire.encode(answer.document)
    kind = "text/plain; charset=utf-8" if answer.document is None else "application/json"
    headers = {"content-type": kind, "content-length": str(len(body)), "cache-control": "no-store"}
    if not body:
        del headers["content-type"]
    if answer.status == 204:
        del headers["content-length"]
    await _begin(send, answer.status, {**headers, **answer.headers})
    await send({"type": "http.response.body", "body": body})


async def keep_open(
    task: asyncio.Future[Answer],
    receive: Receive,
    send: Send,
    *,
    call: Call,
    headers: Mapping[str, str],
    accepts_stream: bool,
    quiet: float = _QUIET,
) -> None:
    """Write the answer of `task`, and cancel it if the client goes first: no client could ask for its result again."""
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        await _wait(task, gone, seconds=quiet if accepts_stream else None)
        if task.done():
            answer = _answer_of(task, call)
            await respond(send, Answer(answer.status, document=answer.document, headers=headers))
        elif not gone.done():
            stream = {"content-type": "text/event-stream", "cache-control": "no-store, no-transform"}
            await _begin(send, 200, {**stream, "x-accel-buffering": "no", **headers})
            while not task.done() and not gone.done():
                await send({"type": "http.response.body", "body": b": running\n\n", "more_body": True})
                await _wait(task, gone, seconds=quiet)
            if task.done():
                data = wire.encode(_answer_of(task, call).document or {})
                await send({"type": "http.response.body", "body": b"event: message\ndata: %b\n\n" % data})
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
