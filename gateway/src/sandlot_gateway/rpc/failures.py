"""Maps failures of a session to the Connect errors that clients act upon."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from sandlot_contract.ids import SandboxId

from ..data.answers import TOKEN_REJECTED, Refusal, Send
from ..data.errors import DialError, UpstreamError, WireError
from ..data.request_gate import RequestGate
from ..data.sidecar_requests import json_object

_log = logging.getLogger(__name__)

# HTTP status (of a Refusal or a sidecar's answer) -> Connect code. On not_found clients ask why the sandbox ended;
# on unavailable they retry. Connect's own mapping of a plain 404 or 502 would cause neither.
_CODES = {
    400: Code.INVALID_ARGUMENT,
    401: Code.UNAUTHENTICATED,
    404: Code.NOT_FOUND,
    408: Code.DEADLINE_EXCEEDED,
    409: Code.FAILED_PRECONDITION,
    410: Code.NOT_FOUND,
    413: Code.INVALID_ARGUMENT,
    431: Code.INVALID_ARGUMENT,
    502: Code.NOT_FOUND,
    503: Code.UNAVAILABLE,
}
_STATUS = {
    Code.INVALID_ARGUMENT: 400,
    Code.UNAUTHENTICATED: 401,
    Code.NOT_FOUND: 404,
    Code.UNIMPLEMENTED: 501,
    Code.UNAVAILABLE: 503,
}


def bad(field: str, message: str) -> ConnectError:
    """Return the error of an invalid request; its message begins with the field's name."""
    return ConnectError(Code.INVALID_ARGUMENT, f"{field}: {message}")


def of_refusal(refusal: Refusal) -> ConnectError:
    return ConnectError(_CODES.get(refusal.status, Code.UNAVAILABLE), str(refusal))


def of_sidecar(status: int, body: bytes) -> ConnectError:
    """Return the error of a sidecar's error response."""
    document = json_object(body)
    message = str(document.get("message") or document.get("error") or f"the sidecar answered {status}")
    if status == 401:
        message = TOKEN_REJECTED
    code = Code.UNAVAILABLE if status in (401, 502) else _CODES.get(status, Code.UNAVAILABLE)
    return ConnectError(code, message)


@contextmanager
def translated(request_gate: RequestGate, sandbox_id: SandboxId) -> Iterator[None]:
    """Convert every failure within into a ConnectError, so that none becomes Connect's HTTP 500."""
    try:
        yield
    except ConnectError:
        raise
    except Refusal as refusal:
        raise of_refusal(refusal) from refusal
    except (DialError, UpstreamError, WireError) as error:
        may_have_run = not isinstance(error, DialError)
        try:
            request_gate.check_alive(sandbox_id, may_have_run=may_have_run)
        except Refusal as refusal:
            raise of_refusal(refusal) from error
        raise ConnectError(Code.ABORTED if may_have_run else Code.UNAVAILABLE, str(error)) from error
    except TimeoutError:
        raise  # Connect's own deadline
    except Exception as error:
        _log.exception("unexpected failure of a command session")
        raise ConnectError(Code.ABORTED, "internal") from error


async def send_error(
    send: Send, error: ConnectError, *, status: int | None, headers: list[tuple[bytes, bytes]]
) -> int:
    """Send an error in Connect's format, before Connect has the request; return the HTTP status."""
    if status is None:
        status = _STATUS.get(error.code, 503)
    body = msgspec.json.encode({"code": error.code.value, "message": error.message})
    head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *headers]
    if status == 503:
        head.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
    return status
