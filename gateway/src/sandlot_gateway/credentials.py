"""Judges a control request by its headers, before a byte of its body is kept."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from sandlot_gateway.keys import Keys


class Credentials:
    """Bodies are collected in memory: without this check a sender without any credential fills it."""

    def __init__(self, *, keys: Keys) -> None:
        self._keys = keys

    def refusal(self, scope: MutableMapping[str, Any]) -> str | None:
        """Why this request's body is not read; None when it may be. The route checks again what it needs."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        # HTTP/2 needs neither header for a body.
        unsaid = scope["http_version"] == "2" and scope["method"] not in ("GET", "HEAD")
        length = headers.get(b"content-length", "unsaid" if unsaid else "0")
        if length == "0" and b"transfer-encoding" not in headers:
            return None
        scheme, _, key = headers.get(b"authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._keys.find(key.strip()) is not None:
            return None
        return "no API key, or one that this server does not know: send Authorization: Bearer KEY"
