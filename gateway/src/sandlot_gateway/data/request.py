"""Turns a client's request headers into those for an upstream: which are dropped, replaced and forwarded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from sandlot_contract.headers import OP_KEY, QUEUED_KEY
from sandlot_contract.ids import SandboxId
from sandlot_contract.trace import TRACEPARENT_KEY

from ..inside import HEADER as INSIDE
from .wire import HOP_BY_HOP

_PASS = 0
_DROP = 1
_AUTHORIZATION = 2
_LENGTH = 3
_CONNECTION = 4
_OP = 5
_REQUEST_ID = 6
_TRACEPARENT = 7

_KIND: dict[bytes, int] = {
    **dict.fromkeys(HOP_BY_HOP, _DROP),
    # The server has already answered "100 Continue" when the body is read.
    b"expect": _DROP,
    b"host": _DROP,
    # Only the gateway knows how long a request was queued; a client's own value would be recorded.
    QUEUED_KEY: _DROP,
    # Code in a sandbox could send the gateway requests as if they were its own.
    INSIDE: _DROP,
    b"authorization": _AUTHORIZATION,
    b"content-length": _LENGTH,
    b"connection": _CONNECTION,
    OP_KEY: _OP,
    b"x-request-id": _REQUEST_ID,
    TRACEPARENT_KEY: _TRACEPARENT,
}


class Parsed(NamedTuple):
    """A client's headers, sorted by their use."""

    lines: list[bytes]  # to forward, each with its line end
    authorization: bytes
    length: bytes | None
    op: bytes
    request_id: bytes
    traceparent: bytes


def sort_headers(headers: Iterable[tuple[bytes, bytes]]) -> Parsed:
    """Sort headers; names are in lower case (ASGI), values have no line ends (the server's parser rejects them)."""
    lines: list[bytes] = []
    authorization = op = request_id = traceparent = b""
    length: bytes | None = None
    connection = b""
    for name, value in headers:
        kind = _KIND.get(name, _PASS)
        if kind == _PASS:
            lines.append(name + b": " + value + b"\r\n")
        elif kind == _DROP:
            pass
        elif kind == _AUTHORIZATION:
            authorization = value
        elif kind == _LENGTH:
            length = value
        elif kind == _CONNECTION:
            connection = value
        else:
            if kind == _OP:
                op = value
            elif kind == _TRACEPARENT:
                traceparent += value  # two are as invalid as one that is too long
            else:
                request_id = value
            lines.append(name + b": " + value + b"\r\n")
    if connection and connection not in (b"keep-alive", b"close", b"Keep-Alive", b"Close"):
        named = {token.strip() for token in connection.lower().split(b",")}
        lines = [line for line in lines if line.partition(b":")[0] not in named]
    return Parsed(lines, authorization, length, op, request_id, traceparent)


def sandbox_in(part: bytes) -> SandboxId:
    """Return the sandbox id in a part of a path; it may be unknown."""
    return SandboxId(part.decode("latin-1"))


def climbs(raw_path: bytes) -> bool:
    """Return whether a path has a segment `.` or `..` in any encoding: it could leave the routes checked for."""
    if b"." not in raw_path and b"%" not in raw_path:
        return False
    plain = unquote_to_bytes(raw_path).replace(b"\\", b"/")
    return any(segment in (b".", b"..") for segment in plain.split(b"/"))
