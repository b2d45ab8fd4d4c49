"""Recognises the requests that this process sends to itself, which it still answers while it drains."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable

HEADER = b"x-sandlot-inside"  # never forwarded to sandboxes


class Inside:
    """The proof of such a request: a header with a secret of this process."""

    def __init__(self) -> None:
        self._secret = secrets.token_hex(32)

    @property
    def headers(self) -> dict[str, str]:
        """Return what to send with each request to the own address, and to no other."""
        return {HEADER.decode(): self._secret}

    def sent(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Return whether this process sent the request with these headers."""
        return any(
            name == HEADER and hmac.compare_digest(value, self._secret.encode()) for name, value in headers
        )
