"""Derives tokens from the master key, for the parts that share them without storing any."""

from __future__ import annotations

import base64
import hashlib
import hmac

MIN_KEY = 16  # bytes of a master key


def mac(key: bytes, *parts: bytes) -> bytes:
    """Return the HMAC-SHA256 of the parts."""
    # Each part has its length as a prefix: without, ("ab", "c") and ("a", "bc") would give one token.
    message = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return hmac.digest(key, message, hashlib.sha256)


def encode(data: bytes) -> str:
    """Encode as URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def instance_token(key: bytes, instance_id: str) -> str:
    """Return the token for claim, reset, end and state of the instance's sidecar; it also signs webhooks."""
    return "sit_" + encode(mac(key, b"instance", instance_id.encode()))
