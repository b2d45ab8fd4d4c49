"""The tokens that several parts derive from the master key, so that none of them has to store one."""

from __future__ import annotations

import base64
import hashlib
import hmac

MIN_KEY = 16  # bytes of a master key


def mac(key: bytes, *parts: bytes) -> bytes:
    """HMAC-SHA256 of the parts."""
    # Each part has its length before it: without, ("ab", "c") and ("a", "bc") would give one token.
    message = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return hmac.digest(key, message, hashlib.sha256)


def encode(data: bytes) -> str:
    """URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def instance_token(key: bytes, instance_id: str) -> str:
    """Opens claim, reset, end and state of that instance's sidecar, and signs its webhooks."""
    return "sit_" + encode(mac(key, b"instance", instance_id.encode()))
