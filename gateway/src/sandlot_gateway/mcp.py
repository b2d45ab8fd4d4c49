"""Serves the tools of the Model Context Protocol at /mcp, by an application that another package brings.

The gateway checks who may ask; the application, of the SDK's package, then calls this gateway's own API with the key of
the request. So it has no rights that the key's owner lacks: docs/adr/0040.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, Protocol

from sandlot_gateway.control.audit import App
from sandlot_gateway.control.errors import error_response
from sandlot_gateway.credentials import bearer
from sandlot_gateway.data.answers import Receive, Scope, Send
from sandlot_gateway.inside import Inside
from sandlot_gateway.keys import Keys
from sandlot_gateway.settings import Settings
from sandlot_gateway.tokens import Tokens

PATH = "/mcp"
_GROUP = "sandlot_gateway.mcp"


class Application(Protocol):
    async def __call__(
        self, scope: Scope, receive: Receive, send: Send, *, key: str, tenant: str
    ) -> None: ...

    async def drain(self, timeout: float) -> None: ...

    async def aclose(self) -> None: ...


class McpMissing(OSError):
    """The setting `mcp` is on, and no installed package has the tools."""


class Mcp:
    """The route of a gateway; it answers once `open` was called with the gateway's own address."""

    def __init__(
        self,
        make: Callable[..., Application],
        *,
        settings: Settings,
        keys: Keys,
        tokens: Tokens,
        inside: Inside,
    ) -> None:
        self._make = make
        self._settings = settings
        self._keys = keys
        self._tokens = tokens
        self._inside = inside
        self._draining = False
        self._origins = frozenset(settings.mcp_origins)
        self._application: Application | None = None

    def open(self, address: str) -> None:
        self._application = self._make(
            address=address,
            public_url=self._settings.public_url,
            image=self._settings.mcp_image,
            headers=self._inside.headers,
            new_session=lambda key: self._tokens.mcp_session(secrets.token_hex(8), key),
            session_name=self._tokens.mcp_session_nonce,
        )

    async def drain(self, seconds: float) -> None:
        """Refuse new requests, also over TLS; wait up to `seconds` for those in flight, and cut the others."""
        self._draining = True
        if self._application is not None:
            await self._application.drain(seconds)

    async def close(self) -> None:
        if self._application is not None:
            await self._application.aclose()

    def before(self, control: App) -> App:
        """Return an application that answers /mcp, and leaves the rest to `control`."""

        async def routed(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["path"] == PATH:
                await self._serve(scope, receive, send)
            else:
                await control(scope, receive, send)

        return routed

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        key = bearer(headers.get(b"authorization", b""))
        origin = headers.get(b"origin")
        tenant = self._keys.find(key)
        if tenant is None:
            answer = error_response(
                401,
                "the API key is missing or unknown: send Authorization: Bearer KEY",
                headers={"www-authenticate": "Bearer"},
            )
            await answer(scope, receive, send)
        # A page could have this gateway's address under a name of its own (DNS rebinding); programs send no Origin.
        elif origin is not None and origin.decode("latin-1") not in self._origins:
            answer = error_response(
                403,
                "pages of this Origin may not use /mcp: the operator can allow it by the setting mcp_origins",
            )
            await answer(scope, receive, send)
        elif self._application is None or self._draining:
            text = (
                "the gateway is shutting down: send the request again, to another gateway"
                if self._draining
                else "the gateway is still starting: try again after Retry-After"
            )
            answer = error_response(503, text, headers={"retry-after": "1"})
            await answer(scope, receive, send)
        else:
            await self._application(scope, receive, send, key=key, tenant=tenant.name)


def mcp_of(settings: Settings, *, keys: Keys, tokens: Tokens, inside: Inside) -> Mcp | None:
    """Return the route if the settings want it. Raises McpMissing."""
    if not settings.mcp:
        return None
    found: Any = next(iter(entry_points(group=_GROUP)), None)
    if found is None:
        raise McpMissing(
            "--mcp needs the package `sandlot`, which has the tools: install it beside the gateway"
        )
    return Mcp(found.load(), settings=settings, keys=keys, tokens=tokens, inside=inside)
