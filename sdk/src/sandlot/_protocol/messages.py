"""Request, response and transport error as plain values; no I/O."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import quote, urlencode

from sandlot._protocol.http1 import Origin


class TransportError(Exception):
    """No usable response: `sent` means the server may have the request, `timed_out` that the wait timed out.

    `final` means that a retry cannot help.
    """

    def __init__(self, message: str, *, sent: bool, timed_out: bool = False, final: bool = False) -> None:
        super().__init__(message)
        self.sent = sent
        self.timed_out = timed_out
        self.final = final


def closed(*, sent: bool) -> TransportError:
    """Return the error of a call on a client that was closed before or during the call."""
    return TransportError("this client is closed", sent=sent, final=True)


def cannot_connect(origin: Origin, reason: str) -> str:
    """Return the error text for a failed connection attempt."""
    return f"cannot connect to {origin.authority}: {reason}; is the server running, and is the URL correct?"


def os_reason(error: OSError) -> str:
    """Return the system's error text without errno and Python's additions."""
    builtin = type(error).__module__ == "builtins"  # ssl and socket errors have numbers of their own
    if builtin and error.errno is not None:
        return os.strerror(error.errno)
    return error.strerror or str(error)


def _no_headers() -> dict[str, str]:
    return {}


@dataclass(slots=True)
class Request:
    """One HTTP request. `safe` ones may be sent twice; `timeout` is the seconds of silence allowed."""

    method: str
    origin: Origin
    target: str
    headers: Mapping[str, str] = field(default_factory=_no_headers)
    body: bytes = b""
    safe: bool = True
    timeout: float | None = 60.0


@dataclass(slots=True)
class Response:
    status: int
    headers: Mapping[str, str]
    body: bytes


JSON_HEADER = {"Content-Type": "application/json"}
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def json_body(document: Mapping[str, Any]) -> bytes:
    """Encode the document as JSON; escape lone surrogates, such as those of undecodable file names."""
    text = _encode(document)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(document, allow_nan=False).encode()


def with_query(path: str, parameters: Mapping[str, object | None]) -> str:
    """Append the parameters that are not None to the path, those of a tuple each; bytes of file names that are not
    UTF-8 are kept.
    """
    present: list[tuple[str, str]] = []
    for key, value in parameters.items():
        values = cast(tuple[object, ...], value) if isinstance(value, tuple) else (value,)
        present += [(key, str(one)) for one in values if one is not None]
    return f"{path}?{urlencode(present, quote_via=quote, errors='surrogateescape')}" if present else path
