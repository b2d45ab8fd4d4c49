"""Builds the data plane's own error responses, whose shape and status are defined in one place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec
from sandlot_contract.headers import VERDICT_KEY

from .errors import DialError, UpstreamError

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


# For a sidecar's 401. Forwarding it would tell the client that its own credential is wrong.
TOKEN_REJECTED = (
    "the sidecar rejected the gateway's token: the sandbox has another owner, or the master keys differ;"
    " compare the Secrets of gateway and controller"
)


class ErrorCode(StrEnum):
    """Error codes that several modules use."""

    SIDECAR_UNREACHABLE = "sidecar_unreachable"
    SIDECAR_LOST = "sidecar_lost"
    APP_FAILED = "app_failed"
    NO_WEBSOCKET = "no_websocket"


class Refusal(Exception):
    """An error response that the gateway sends itself."""

    def __init__(
        self,
        status: int,
        error: str,
        message: str,
        *,
        headers: Sequence[tuple[bytes, bytes]] = (),
        **fields: Any,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = list(headers)
        self.document = {"error": error, "message": message, **fields}


def unauthorized() -> Refusal:
    return Refusal(
        401,
        "unauthorized",
        "the credential is missing, wrong or expired: send the sandbox's token or an API key of its tenant",
        headers=[(b"www-authenticate", b"Bearer")],
    )


def no_such_route(path: str) -> Refusal:
    return Refusal(
        404, "no_such_route", f"no route for {path}: the path is misspelt, or only the gateway may call it"
    )


def sandbox_not_found(*, verdict: str | None, message: str | None, **fields: Any) -> Refusal:
    """Return the error for an unknown or ended sandbox; Prime's clients match on its code."""
    return Refusal(
        502,
        "sandbox_not_found",
        message or "no such sandbox: its id is wrong, its record was removed, or another tenant owns it",
        headers=[(VERDICT_KEY, verdict.encode("ascii", "replace"))] if verdict else (),
        verdict=verdict,
        **fields,
    )


def unreachable(error: DialError) -> Refusal:
    """Return the error for a failed dial of a sandbox that has not ended; `sandbox` is the state of its sidecar."""
    return Refusal(502, ErrorCode.SIDECAR_UNREACHABLE, str(error), may_have_run=False, sandbox=error.peer)


def token_rejected() -> Refusal:
    return Refusal(502, ErrorCode.SIDECAR_UNREACHABLE, TOKEN_REJECTED, may_have_run=False)


def sidecar_lost(error: UpstreamError) -> Refusal:
    return Refusal(502, ErrorCode.SIDECAR_LOST, str(error), may_have_run=True)


def unavailable(error: str, message: str, *, retry_after: int, **fields: Any) -> Refusal:
    return Refusal(503, error, message, headers=[(b"retry-after", b"%d" % retry_after)], **fields)


def gateway_ended() -> Refusal:
    return Refusal(
        502,
        "gateway_ended",
        "the gateway stopped before the answer: retry with the same op id to get the result",
        headers=[(b"connection", b"close")],
        may_have_run=True,
    )


def unexpected() -> Refusal:
    """Return the error for a failure that no code expects; 503, since there is no 500 by design."""
    message = (
        "unexpected failure in the gateway, whose log has the cause: retry with the same op id, or report it"
    )
    return unavailable("internal", message, retry_after=1, may_have_run=True)


async def send_json(
    send: Send, status: int, document: Any, *, headers: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    body = msgspec.json.encode(document)
    head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
