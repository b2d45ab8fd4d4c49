"""Rejects and closes WebSockets, for terminals and exposed apps."""

from __future__ import annotations

import msgspec

from .answers import Refusal, Scope, Send

GOING_AWAY = 1001
INTERNAL = 1011
TRY_LATER = 1013


async def refuse(scope: Scope, send: Send, refusal: Refusal, *, request_id: bytes) -> None:
    """Reject with the status and JSON of HTTP, or with close code 4000 + status if the server cannot."""
    if "websocket.http.response" in (scope.get("extensions") or {}):
        body = msgspec.json.encode(refusal.document)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"x-request-id", request_id),
            *refusal.headers,
        ]
        await send({"type": "websocket.http.response.start", "status": refusal.status, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": body})
    else:
        await send(
            {"type": "websocket.close", "code": 4000 + refusal.status, "reason": refusal.document["error"]}
        )


def reason(text: str) -> str:
    """Truncate a close reason to the 123 bytes that the protocol allows."""
    return text.encode()[:123].decode("utf-8", "ignore")
