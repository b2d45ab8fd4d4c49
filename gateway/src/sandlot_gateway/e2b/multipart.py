"""Parses multipart/form-data as it arrives, without I/O and without keeping more than a line of a part."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from .failures import invalid

MAX_PARTS = 1000
_MAX_HEAD = 16 << 10
_MAX_PREAMBLE = 16 << 10
_PARAMETER = re.compile(r';\s*([A-Za-z0-9_*-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;"\s]*))')
_ESCAPES = {"%22": '"', "%0D": "\r", "%0A": "\n"}  # the only ones that form data has


@dataclass(frozen=True, slots=True)
class Part:
    """The head of a part; its content follows, then END_OF_PART."""

    name: str
    filename: str | None


class Mark(Enum):
    END_OF_PART = auto()


class _State(Enum):
    PREAMBLE = auto()
    AFTER_BOUNDARY = auto()
    HEAD = auto()
    CONTENT = auto()
    EPILOGUE = auto()


def boundary_of(content_type: str) -> bytes:
    """Return the boundary of a Content-Type. Raises EnvdFailure."""
    found = dict(_parameters(content_type)).get("boundary", "")
    if not 0 < len(found) <= 200 or not found.isascii():
        raise invalid("content-type", "multipart/form-data needs a boundary of 1 to 200 characters")
    return found.encode()


class MultipartReader:
    def __init__(self, boundary: bytes) -> None:
        self._delimiter = b"\r\n--" + boundary
        self._buffer = bytearray(b"\r\n")  # the first boundary has no line before it
        self._state = _State.PREAMBLE
        self._parts = 0
        self._passed = 0

    @property
    def ended(self) -> bool:
        """Whether the last boundary was found."""
        return self._state is _State.EPILOGUE

    def feed(self, data: bytes) -> Iterator[Part | bytes | Mark]:
        """Yield each part's head, content and end. Raises EnvdFailure."""
        self._buffer += data
        while self._state is not _State.EPILOGUE:
            if self._state in (_State.PREAMBLE, _State.CONTENT):
                at = self._buffer.find(self._delimiter)
                # Without the delimiter, its beginning may be at the end of what has arrived.
                size = at if at >= 0 else max(0, len(self._buffer) - len(self._delimiter) + 1)
                piece = bytes(self._buffer[:size])
                del self._buffer[:size]
                if self._state is _State.CONTENT and piece:
                    yield piece
                elif self._state is _State.PREAMBLE:
                    self._passed += len(piece)
                    if self._passed > _MAX_PREAMBLE:
                        raise invalid("body", "no boundary where the first part should begin")
                if at < 0:
                    return
                del self._buffer[: len(self._delimiter)]
                if self._state is _State.CONTENT:
                    yield Mark.END_OF_PART
                self._state = _State.AFTER_BOUNDARY
            elif self._state is _State.AFTER_BOUNDARY:
                if len(self._buffer) < 2:
                    return
                follows = bytes(self._buffer[:2])
                if follows not in (b"--", b"\r\n"):
                    raise invalid("body", "a boundary is followed by neither a line end nor `--`")
                del self._buffer[:2]
                self._state = _State.EPILOGUE if follows == b"--" else _State.HEAD
            else:
                at = self._buffer.find(b"\r\n\r\n")
                if at < 0 or at > _MAX_HEAD:
                    if len(self._buffer) > _MAX_HEAD:
                        raise invalid("body", f"the head of a part is larger than {_MAX_HEAD} bytes")
                    return
                self._parts += 1
                if self._parts > MAX_PARTS:
                    raise invalid("body", f"more than {MAX_PARTS} parts: send them in several requests")
                head = bytes(self._buffer[:at])
                del self._buffer[: at + 4]
                self._state = _State.CONTENT
                yield _part(head)
        self._buffer.clear()

    def finish(self) -> None:
        """Check that the body has ended with its last boundary. Raises EnvdFailure."""
        if not self.ended:
            raise invalid("body", "it ended before its last boundary")


def _part(head: bytes) -> Part:
    try:
        lines = head.decode().split("\r\n")
    except UnicodeDecodeError as error:
        raise invalid("body", f"the head of a part is not UTF-8: {error}") from error
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip().lower() == "content-disposition":
            found = dict(_parameters(value))
            return Part(found.get("name", ""), found.get("filename"))
    raise invalid("body", "a part has no Content-Disposition")


def _parameters(value: str) -> Iterator[tuple[str, str]]:
    for name, quoted, plain in _PARAMETER.findall(value):
        text = re.sub(r"\\(.)", r"\1", quoted) or plain
        yield name.lower(), re.sub("%22|%0D|%0A", lambda found: _ESCAPES[found[0]], text)
