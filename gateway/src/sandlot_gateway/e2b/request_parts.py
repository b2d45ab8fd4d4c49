"""Reads the parts of a request of the control API: its body, its query and its headers."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs

from sandlot_gateway.data.answers import Receive, Scope

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
