"""Authenticates a control request by its headers, before its body is buffered."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

from sandlot_gateway.keys import Keys

NEWS_PATH, KEYS_PATH = "/internal/news", "/internal/keys"  # for other gateways


def bearer(authorization: bytes) -> str:
    """Return the token of an Authorization header, or ""."""
    scheme, _, token = authorization.partition(b" ")
    return token.strip().decode("latin-1") if scheme.lower() == b"bearer" else ""


class Credentials:
    """Checks credentials early: bodies are buffered in memory, which an unauthenticated client could fill."""

    def __init__(self, *, keys: Keys, is_peer: Callable[[str], bool] = lambda token: False) -> None:
        """`is_peer`: whether a token is that of another gateway."""
        self._keys = keys
        self._is_peer = is_peer

    def refusal(self, scope: MutableMapping[str, Any]) -> str | None:
        """Return why this request's body is not read, or None. The route checks its own requirements again."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        # HTTP/2 needs neither header for a body.
        unsaid = scope["http_version"] == "2" and scope["method"] not in ("GET", "HEAD")
        length = headers.get(b"content-length", b"unsaid" if unsaid else b"0")
        if length == b"0" and b"transfer-encoding" not in headers:
            return None
        token = bearer(headers.get(b"authorization", b""))
        if self._keys.find(token) is not None:
            return None
        if scope.get("path") == NEWS_PATH and self._is_peer(token):
            return None
        return "the API key is missing or unknown: send Authorization: Bearer KEY"
