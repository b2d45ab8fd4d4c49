"""Failures in the forms that E2B's SDKs turn into their exceptions: `{code, message}` with a number, or Connect's name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sandlot_contract.ids import SandboxId

from sandlot_gateway.data.answers import TOKEN_REJECTED, ErrorCode, Refusal
from sandlot_gateway.data.errors import DialError, UpstreamError, WireError
from sandlot_gateway.data.request_gate import RequestGate
from sandlot_gateway.data.sidecar_requests import json_object

# Connect code -> HTTP status of an RPC. Of a plain request `unavailable` is 502: only with that does the SDK ask
# whether the sandbox is gone.
_STATUSES = {
    "invalid_argument": 400,
    "unauthenticated": 401,
    "permission_denied": 403,
    "not_found": 404,
    "already_exists": 409,
    "resource_exhausted": 429,
    "unimplemented": 501,
    "unavailable": 503,
    "deadline_exceeded": 504,
}
_SIDECAR = {
    400: "invalid_argument",
    403: "permission_denied",
    404: "not_found",
    408: "deadline_exceeded",
    413: "resource_exhausted",
    410: "unavailable",
    416: "invalid_argument",
    429: "unavailable",
}


class Problem(Exception):
    """An error of the control API; `status` is also the `code` of its body."""

    def __init__(self, status: int, message: str, *, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.headers = list(headers)

    def document(self) -> dict[str, Any]:
        return {"code": self.status, "message": str(self)}


class EnvdFailure(Exception):
    """An error of envd: a Connect code, and the status of a plain HTTP request that fails so."""

    def __init__(self, code: str, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.rpc_status = _STATUSES.get(code, 503)
        self.http_status = status or (502 if code == "unavailable" else self.rpc_status)

    def headers(self, status: int, request_id: bytes, *, draining: bool) -> list[tuple[bytes, bytes]]:
        """Return those of the response: when to ask again, and whether the connection ends."""
        headers = [(b"x-request-id", request_id)]
        if status in (429, 503):
            headers.append((b"retry-after", b"1"))
        if self.code == "unauthenticated" or draining:
            headers.append((b"connection", b"close"))
        return headers

    def rpc_document(self) -> dict[str, Any]:
        return {"code": self.code, "message": str(self)}

    def http_document(self) -> dict[str, Any]:
        return {"code": self.http_status, "message": str(self)}


def invalid(field: str, message: str) -> EnvdFailure:
    return EnvdFailure("invalid_argument", f"{field}: {message}")


def not_running(sandbox_id: str, why: str | None = None) -> EnvdFailure:
    """Return the failure for a sandbox that has ended or never was; the SDK looks for `was not found`."""
    return EnvdFailure("unavailable", f"the sandbox {sandbox_id} was not found" + (f": {why}" if why else ""))


def of_refusal(refusal: Refusal, sandbox_id: SandboxId) -> EnvdFailure:
    """Return the failure for a refusal of the data plane."""
    error = refusal.document["error"]
    if error == "sandbox_not_found":
        return not_running(sandbox_id, str(refusal))
    if error == ErrorCode.SIDECAR_UNREACHABLE:
        return EnvdFailure("unavailable", f"the sandbox is running but the port is not open: {refusal}")
    if error == "busy":
        return EnvdFailure("resource_exhausted", str(refusal))
    if refusal.status == 401:
        return EnvdFailure("unauthenticated", str(refusal))
    return EnvdFailure("unavailable", str(refusal))


def of_sidecar(status: int, body: bytes, sandbox_id: SandboxId) -> EnvdFailure:
    """Return the failure for a sidecar's error response."""
    document = json_object(body)
    error, message = document.get("error"), str(document.get("message") or f"the sidecar answered {status}")
    if status == 400 and document.get("field") == "user":
        return EnvdFailure("unauthenticated", message)
    if status == 410 and error == "ended":
        return not_running(sandbox_id, message)
    if status == 401:
        return EnvdFailure("unavailable", TOKEN_REJECTED)
    if status == 409:
        return EnvdFailure("already_exists" if error == "exists" else "invalid_argument", message, status=400)
    if status == 507:
        return EnvdFailure("resource_exhausted", message, status=507)
    if error == "busy":
        return EnvdFailure("resource_exhausted", message)
    # Any other refusal of a request is no loss of the sandbox.
    code = _SIDECAR.get(status, "invalid_argument" if 400 <= status < 500 else "unavailable")
    return EnvdFailure(code, message)


@contextmanager
def translated(gate: RequestGate, sandbox_id: SandboxId) -> Iterator[None]:
    """Turn every known failure within into an EnvdFailure."""
    try:
        yield
    except Refusal as refusal:
        raise of_refusal(refusal, sandbox_id) from refusal
    except (DialError, UpstreamError, WireError) as error:
        try:
            gate.check_alive(sandbox_id, may_have_run=not isinstance(error, DialError))
        except Refusal as refusal:
            raise of_refusal(refusal, sandbox_id) from error
        if isinstance(error, DialError):
            text = f"the sandbox is running but the port is not open: {error}"
        else:
            text = f"the connection to the sandbox ended before its answer: {error}"
        raise EnvdFailure("unavailable", text) from error
