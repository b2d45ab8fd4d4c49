"""JSON-RPC 2.0 as the protocol uses it: parses one message of a hostile peer, and encodes answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NoReturn, cast

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
HEADER_MISMATCH = -32020
UNSUPPORTED_VERSION = -32022
CANCELLED = -32800
BUSY = -32000

RequestId = str | int

_LONGEST_ID = 1024


class WireError(Exception):
    """A message that gets an error for an answer."""

    def __init__(self, code: int, message: str, *, data: object = None, id: RequestId | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data
        self.id = id


@dataclass(frozen=True, slots=True)
class Call:
    """A request, or with `id` None a notification; `is_answer`: the peer's answer to a request, of which there are none."""

    method: str
    params: dict[str, Any]
    id: RequestId | None = None
    is_answer: bool = False


def parse(data: bytes) -> Call:
    """Parse one message. Raises WireError."""
    try:
        found: object = json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise WireError(PARSE_ERROR, "the message is not JSON") from None
    if not isinstance(found, dict):
        raise WireError(INVALID_REQUEST, "the message must be one JSON-RPC object; batches are not supported")
    message = cast(dict[str, Any], found)
    identity = message.get("id")
    if "id" in message and not _is_id(identity):
        raise WireError(INVALID_REQUEST, "id: must be a string or a whole number")
    if message.get("jsonrpc") != "2.0":
        raise WireError(INVALID_REQUEST, 'jsonrpc: must be "2.0"', id=identity)
    method, params = message.get("method"), message.get("params", {})
    if method is None and ("result" in message or "error" in message):
        return Call("", {}, identity, is_answer=True)
    if not isinstance(method, str):
        raise WireError(INVALID_REQUEST, "method: must be a string", id=identity)
    if not isinstance(params, dict):
        raise WireError(INVALID_PARAMS, "params: must be an object", id=identity)
    return Call(method, cast(dict[str, Any], params), identity)


def result_of(identity: RequestId | None, result: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identity, "result": result}


def error_of(error: WireError, identity: RequestId | None = None) -> dict[str, Any]:
    about: dict[str, Any] = {"code": error.code, "message": str(error)}
    if error.data is not None:
        about["data"] = error.data
    return {"jsonrpc": "2.0", "id": error.id if identity is None else identity, "error": about}


def encode(message: dict[str, Any]) -> bytes:
    """Encode on one line, as UTF-8 also where a name in a sandbox is not: clients reject half surrogate pairs."""
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    # Some clients end a line at these, too.
    text = text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").replace("\x85", "\\u0085")
    return text.encode("utf-8", "replace")


def _is_id(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= _LONGEST_ID
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
