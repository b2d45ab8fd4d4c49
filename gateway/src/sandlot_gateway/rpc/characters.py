"""Keeps UTF-8 characters whole: an incomplete one is held until its rest arrives, without I/O."""

from __future__ import annotations

import codecs


class Characters:
    """A filter for the payloads of an op's output frames, after which each payload can be decoded alone.

    Prime's clients up to 0.4.0 do that. Invalid UTF-8 passes unchanged and at once: only the valid beginning of a
    character is held, at most three bytes per stream.
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[int, bytes] = {}

    def feed(self, kind: int, payload: bytes) -> bytes:
        """Return what can be sent of a stream now; b"" if all of it is held."""
        data = self._held.pop(kind, b"") + payload
        if not data or data[-1] < 0x80:
            return data
        # A character has at most four bytes, so an incomplete one begins in the last three.
        tail = data[-3:]
        held = len(tail) - codecs.utf_8_decode(tail, "replace", False)[1]
        if held == 2 and tail[-2] == 0xED and tail[-1] >= 0xA0:
            held = 0  # a surrogate: never valid UTF-8, but the decoder waits for its third byte
        if held:
            self._held[kind] = data[-held:]
        return data[: len(data) - held]

    def rest(self) -> list[tuple[int, bytes]]:
        """Return and clear what is held, as (kind, payload) of each stream."""
        rest = list(self._held.items())
        self._held.clear()
        return rest

    @property
    def waiting(self) -> bool:
        """Whether bytes are held."""
        return bool(self._held)
