"""Bounds the bytes that the datagrams of all UDP exposures occupy in the gateway."""

from __future__ import annotations

import time
from collections.abc import Callable

from . import udp_limits

_COUNT_AGAIN = 0.1  # seconds; counting asks every flow


class ByteBudget:
    """Adds up what flows take, and counts what they still hold only when the sum reaches the limit."""

    def __init__(self, held: Callable[[], int]) -> None:
        """`held` returns the bytes of all flows."""
        self._held = held
        self._taken = 0
        self._counted_at = 0.0

    def take(self, size: int) -> bool:
        """Take room for `size` bytes; return False if there is none: drop them."""
        if self._taken + size > udp_limits.ALL_BYTES:
            now = time.monotonic()
            if now - self._counted_at >= _COUNT_AGAIN:
                self._counted_at = now
                self._taken = self._held()
            if self._taken + size > udp_limits.ALL_BYTES:
                return False
        self._taken += size
        return True
