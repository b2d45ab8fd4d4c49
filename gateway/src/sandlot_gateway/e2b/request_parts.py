"""Reads the parts of a request of the control API, its body, its query and its headers, and sends its answer."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import parse_qs

from sandlot_gateway.data.answers import Receive, Scope, Send, send_json

from .failures import Problem
from .uploads import body_pieces

_MOST_BODY = 1 << 20
_BODY_TIMEOUT = 30.0


async def body_of(receive: Receive) -> bytes:
    """Read a request's body. Raises Problem, ClientGone."""
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(_BODY_TIMEOUT):
            async for piece in body_pieces(receive):
                size += len(piece)
                if size > _MOST_BODY:
                    text = f"the body is larger than {_MOST_BODY} bytes: write files with files.write"
                    raise Problem(413, text, headers=[(b"connection", b"close")])
                pieces.append(piece)
    except TimeoutError as error:
        text = f"the body did not arrive within {_BODY_TIMEOUT:g} s: send it again"
        raise Problem(408, text, headers=[(b"connection", b"close")]) from error
    return b"".join(pieces)


def query_of(scope: Scope) -> dict[str, list[str]]:
    return parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)


def header_of(scope: Scope, name: bytes) -> str:
    return next((value for key, value in scope["headers"] if key == name), b"").decode("latin-1")


async def send_answer(send: Send, status: int, document: Any, *, headers: list[tuple[bytes, bytes]]) -> None:
    """Send an answer of the control API; None: without a body."""
    if document is not None:
        await send_json(send, status, document, headers=[*headers, (b"cache-control", b"no-store")])
        return
    if status != 204:
        headers = [*headers, (b"content-length", b"0")]  # else the JavaScript SDK parses the body
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
