"""Builds the head of a request to an upstream, safe against header injection."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sandlot_contract.sidecar import ENCRYPTED

_TARGET = re.compile(r"[!-~]+\Z")
_METHOD = re.compile(r"[A-Z]+\Z")
_FIELD_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_FIELD_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*\Z")


def host_header(address: str) -> bytes:
    """Return the Host header for an address; a Unix socket has no name of its own."""
    return b"sidecar" if address.startswith("unix:") else address.removeprefix(ENCRYPTED).encode()


def request_bytes(
    method: str,
    target: str,
    *,
    host: bytes,
    headers: Iterable[tuple[str | bytes, str | bytes]] = (),
    body: bytes | None = b"",
) -> bytes:
    """Return the head of a request and its body (None: no body and no length).

    Raises ValueError for a part that would end a line early.
    """
    if not _METHOD.match(method):
        raise ValueError(f"not a method: {method!r}")
    if not _TARGET.match(target):
        raise ValueError(f"not a request target: {target!r}")
    lines = [b"%b %b HTTP/1.1\r\nhost: %b\r\n" % (method.encode(), target.encode(), host)]
    for name, value in headers:
        name_bytes = name.encode("latin-1") if isinstance(name, str) else name
        value_bytes = value.encode("latin-1") if isinstance(value, str) else value
        if not _FIELD_NAME.match(name_bytes) or not _FIELD_VALUE.match(value_bytes):
            raise ValueError(f"not a header: {name!r}")
        lines.append(b"%b: %b\r\n" % (name_bytes, value_bytes))
    if body is None:
        lines.append(b"\r\n")
    elif body or method in ("POST", "PUT", "PATCH"):
        lines.append(b"content-length: %d\r\n\r\n" % len(body))
        lines.append(body)
    else:
        lines.append(b"\r\n")
    return b"".join(lines)
