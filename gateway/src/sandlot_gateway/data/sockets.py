"""Small steps that both kinds of WebSocket share: refusing one before it is accepted, and closing it."""

from __future__ import annotations

import msgspec

from .answers import Refusal, Scope, Send

GOING_AWAY = 1001
INTERNAL = 1011
TRY_LATER = 1013


async def refuse(scope: Scope, send: Send, refusal: Refusal) -> None:
    """The same status and JSON as over HTTP; where the server cannot do that, a close code 4000 + status."""
    if "websocket.http.response" in (scope.get("extensions") or {}):
        body = msgspec.json.encode(refusal.document)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            *refusal.headers,
        ]
        await send({"type": "websocket.http.response.start", "status": refusal.status, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": body})
    else:
        await send(
            {"type": "websocket.close", "code": 4000 + refusal.status, "reason": refusal.document["error"]}
        )


def reason(text: str) -> str:
    """A close reason has at most 123 bytes."""
    return text.encode()[:123].decode("utf-8", "ignore")
