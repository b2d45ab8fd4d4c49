"""Decodes the frames of an op or a watch (application/vnd.sandlot.frames) and tracks the offset to resume an op from."""

from __future__ import annotations

from typing import NamedTuple

STDOUT, STDERR, KEEPALIVE, START, END, EVENTS = b"o", b"e", b"k", b"s", b"x", b"w"
HEADER = 5
MAX_PAYLOAD = 64 * 1024 * 1024
_KNOWN = frozenset((STDOUT, STDERR, KEEPALIVE, START, END, EVENTS))


class FrameError(Exception):
    """The stream does not consist of valid frames."""


class Frame(NamedTuple):
    type: bytes
    payload: bytes


def encode(frame_type: bytes, payload: bytes) -> bytes:
    """Encode one frame."""
    return frame_type + len(payload).to_bytes(4, "big") + payload


class FrameDecoder:
    """Decodes bytes fed in any chunks into frames.

    `offset` counts the bytes of the complete frames, without keep-alives: a new stream from this offset resumes
    exactly where this one stopped.
    """

    __slots__ = ("_buffer", "ended", "offset")

    def __init__(self, *, offset: int = 0) -> None:
        self.offset = offset
        self.ended = False
        self._buffer: bytes = b""

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that are now complete. Raises FrameError."""
        if self._buffer:
            data = self._buffer + data
        frames: list[Frame] = []
        position = 0
        while len(data) - position >= HEADER:
            frame_type = data[position : position + 1]
            if frame_type not in _KNOWN:
                raise FrameError(f"unknown frame type {frame_type!r}")
            if self.ended and frame_type != KEEPALIVE:
                raise FrameError("a frame after the end")
            size = int.from_bytes(data[position + 1 : position + HEADER], "big")
            if size > MAX_PAYLOAD:
                raise FrameError(f"a frame of {size} bytes")
            end = position + HEADER + size
            if len(data) < end:
                break
            if frame_type == KEEPALIVE:
                position = end
                continue
            frames.append(Frame(frame_type, data[position + HEADER : end]))
            self.offset += HEADER + size
            self.ended = frame_type == END
            position = end
        self._buffer = data[position:]
        return frames

    def restart(self) -> None:
        """Drop an incomplete frame, before reading a new stream from `offset`."""
        self._buffer = b""
