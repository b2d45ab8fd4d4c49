"""Keeps a stream's UTF-8 characters whole: one that a frame cuts off waits for its rest, without I/O."""

from __future__ import annotations

import codecs


class Characters:
    """Feed the payloads of an op's output frames; each one that comes out can be decoded alone.

    Prime's clients as late as 0.4.0 do that. Bytes that are no UTF-8 come out as they went in, and at once: only
    the valid beginning of a character is held, at most three bytes of each stream.
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[int, bytes] = {}

    def feed(self, kind: int, payload: bytes) -> bytes:
        """What can be sent of a stream now; b"" when all of it waits."""
        data = self._held.pop(kind, b"") + payload
        if not data or data[-1] < 0x80:
            return data
        # A character has four bytes at most, so that its beginning is among the last three.
        tail = data[-3:]
        held = len(tail) - codecs.utf_8_decode(tail, "replace", False)[1]
        if held:
            self._held[kind] = data[-held:]
        return data[: len(data) - held]

    def rest(self) -> list[tuple[int, bytes]]:
        """What waits, when nothing comes that could complete it: (kind, payload) of each stream."""
        rest = list(self._held.items())
        self._held.clear()
        return rest

    @property
    def waiting(self) -> bool:
        """Whether anything is held."""
        return bool(self._held)
