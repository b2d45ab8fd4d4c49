"""HMAC-SHA256 over the interpreter's own SHA-256: `hmac` would load OpenSSL, 3 MiB for one signature."""

from __future__ import annotations

try:
    from _sha256 import sha256  # type: ignore[import-not-found]  # up to Python 3.11
except ImportError:
    from _sha2 import sha256  # type: ignore[import-not-found,no-redef]

BLOCK = 64


def hexdigest(key: bytes, message: bytes) -> str:
    """Return the HMAC in hexadecimal (RFC 2104)."""
    if len(key) > BLOCK:
        key = sha256(key).digest()
    key = key.ljust(BLOCK, b"\0")
    inner = sha256(bytes(byte ^ 0x36 for byte in key) + message).digest()
    return sha256(bytes(byte ^ 0x5C for byte in key) + inner).hexdigest()
