"""A request and a response as values, and the transport's own error; no I/O."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from sandlot._protocol.http1 import Origin


class TransportError(Exception):
    """No usable answer: `sent` says that the server may have got the request, `timed_out` that we stopped waiting.

    `final`: another attempt would fare no better.
    """

    def __init__(self, message: str, *, sent: bool, timed_out: bool = False, final: bool = False) -> None:
        super().__init__(message)
        self.sent = sent
        self.timed_out = timed_out
        self.final = final


def closed(*, sent: bool) -> TransportError:
    """What a call on a client hears that was closed before or meanwhile."""
    return TransportError("this client is closed", sent=sent, final=True)


def cannot_connect(origin: Origin, reason: str) -> str:
    """What a caller reads when no connection to the server could be made."""
    return f"cannot connect to {origin.authority}: {reason}; does the server run, and is the URL its own?"


def os_reason(error: OSError) -> str:
    """What the system said, without numbers and Python's additions."""
    builtin = type(error).__module__ == "builtins"  # the numbers of ssl's and socket's errors are their own
    if builtin and error.errno is not None:
        return os.strerror(error.errno)
    return error.strerror or str(error)


def _no_headers() -> dict[str, str]:
    return {}


@dataclass(slots=True)
class Request:
    """One HTTP request. `safe` ones may be sent twice; `timeout` is how long, in seconds, silence is borne."""

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
    """The document as JSON. Lone surrogates (undecodable file names, say) are escaped rather than refused."""
    text = _encode(document)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(document, allow_nan=False).encode()


def with_query(path: str, parameters: Mapping[str, object | None]) -> str:
    """The path with those parameters that are not None. Bytes of a file's name that are no UTF-8 stay those bytes."""
    present = [(key, str(value)) for key, value in parameters.items() if value is not None]
    return f"{path}?{urlencode(present, quote_via=quote, errors='surrogateescape')}" if present else path
