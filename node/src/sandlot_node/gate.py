"""Lets only requests with the agent's token through; the kubelet's probes and metrics need none."""

from __future__ import annotations

import hmac

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_OPEN = frozenset({"/healthz", "/metrics"})


class TokenGate:
    """Answers 401 before it reads a body."""

    def __init__(self, app: ASGIApp, *, token: str) -> None:
        self._app = app
        self._want = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _OPEN:
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("authorization", "").encode("latin-1")
        if hmac.compare_digest(given, self._want):
            await self._app(scope, receive, send)
            return
        body: dict[str, object] = {
            "code": "unauthenticated",
            "detail": "the node agent's token is missing or wrong; send `Authorization: Bearer TOKEN`",
            "errors": [],
        }
        response = JSONResponse(body, status_code=401, headers={"WWW-Authenticate": "Bearer"})
        await response(scope, receive, send)
