"""Bounds the bytes that the datagrams of all UDP exposures occupy in the gateway."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Protocol

from . import udp_limits

_COUNT_AGAIN = 0.1  # seconds; counting asks every flow


class Flow(Protocol):
    @property
    def held(self) -> int:
        """The bytes that wait in it."""
        ...


class ByteBudget:
    """Adds up what flows take, and counts what they still hold only when the sum reaches the limit."""

    def __init__(self, flows: Callable[[], Iterable[Flow]]) -> None:
        self._flows = flows
        self._taken = 0
        self._part = 0  # bytes that each flow may have even when others have taken all
        self._counted_at = 0.0

    def take(self, flow: Flow, size: int) -> bool:
        """Take room for `size` bytes; return False if there is none: drop them."""
        if self._taken + size > udp_limits.ALL_BYTES:
            now = time.monotonic()
            if now - self._counted_at >= _COUNT_AGAIN:
                self._counted_at = now
                held = [each.held for each in self._flows()]
                self._taken = sum(held)
                self._part = udp_limits.ALL_BYTES // (len(held) + 1)
            if self._taken + size > udp_limits.ALL_BYTES and flow.held + size > self._part:
                return False
        self._taken += size
        return True
