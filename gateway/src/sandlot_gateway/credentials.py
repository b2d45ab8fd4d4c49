"""Authenticates a control request by its headers, before its body is buffered."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

from sandlot_gateway.keys import Keys

NEWS_PATH = "/internal/news"  # for other gateways


class Credentials:
    """Checks credentials early: bodies are buffered in memory, which an unauthenticated client could fill."""

    def __init__(self, *, keys: Keys, is_peer: Callable[[str], bool] = lambda token: False) -> None:
        """`is_peer`: whether a token is that of another gateway."""
        self._keys = keys
        self._is_peer = is_peer

    def refusal(self, scope: MutableMapping[str, Any]) -> str | None:
        """Return why this request's body is not read, or None. The route checks its own requirements again."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        # HTTP/2 needs neither header for a body.
        unsaid = scope["http_version"] == "2" and scope["method"] not in ("GET", "HEAD")
        length = headers.get(b"content-length", "unsaid" if unsaid else "0")
        if length == "0" and b"transfer-encoding" not in headers:
            return None
        scheme, _, key = headers.get(b"authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._keys.find(key.strip()) is not None:
            return None
        if scheme.lower() == "bearer" and scope.get("path") == NEWS_PATH and self._is_peer(key.strip()):
            return None
        return "the API key is missing or unknown: send Authorization: Bearer KEY"
