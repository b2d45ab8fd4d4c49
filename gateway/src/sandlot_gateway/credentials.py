"""Judges a control request by its headers, before a byte of its body is kept."""

from __future__ import annotations

import hmac
from collections.abc import MutableMapping
from typing import Any

from sandlot_gateway.keys import Keys
from sandlot_gateway.tokens import Tokens

WEBHOOK_PATH = "/internal/sidecar"


class Credentials:
    """Bodies are collected in memory: without this check a sender without any credential fills it."""

    def __init__(self, *, keys: Keys, tokens: Tokens) -> None:
        self._keys = keys
        self._tokens = tokens

    def refusal(self, scope: MutableMapping[str, Any]) -> str | None:
        """Why this request's body is not read; None when it may be. The route checks again what it needs."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        if headers.get(b"content-length", "0") == "0" and b"transfer-encoding" not in headers:
            return None
        if scope["path"] == WEBHOOK_PATH:
            instance_id = headers.get(b"x-sandlot-instance", "")
            if self._is_sender(instance_id, headers.get(b"x-sandlot-sender", "")):
                return None
            return "this webhook does not come from its instance's sidecar; do the master keys differ?"
        scheme, _, key = headers.get(b"authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._keys.find(key.strip()) is not None:
            return None
        return "an API key is needed: Authorization: Bearer KEY"

    def _is_sender(self, instance_id: str, credential: str) -> bool:
        wanted = self._tokens.webhook_sender(instance_id)
        return len(instance_id) <= 128 and hmac.compare_digest(wanted.encode(), credential.encode())
