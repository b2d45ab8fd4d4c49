"""Parses server-sent events, as the HTML standard defines them."""

from __future__ import annotations

from dataclasses import dataclass

LONGEST = 1 << 20  # bytes of one event


class SseError(Exception):
    """The stream has an event that is longer than a server sends."""


@dataclass(frozen=True, slots=True)
class SseMessage:
    """One event; `data` is empty for one that only moves the last id."""

    id: str
    event: str
    data: str


class SseDecoder:
    """Feed it bytes; it keeps an incomplete event, and the last id."""

    def __init__(self) -> None:
        self._rest = b""
        self._size = 0
        self._last_id = ""
        self._event = ""
        self._data: list[str] = []
        self._has_id = False

    def feed(self, data: bytes) -> list[SseMessage]:
        """Return the events that this completes. Raises SseError."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        found: list[SseMessage] = []
        for line in lines:
            self._size += len(line)
            if message := self._line(line.removesuffix(b"\r").decode("utf-8", "replace")):
                found.append(message)
        if self._size + len(self._rest) > LONGEST:
            raise SseError("an event of the stream is longer than 1 MiB")
        return found

    def _line(self, line: str) -> SseMessage | None:
        if not line:
            return self._end()
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "id":
            self._last_id, self._has_id = value, True
        elif field == "event":
            self._event = value
        elif field == "data":
            self._data.append(value)
        return None

    def _end(self) -> SseMessage | None:
        message = None
        if self._data or self._has_id:
            message = SseMessage(self._last_id, self._event, "\n".join(self._data))
        self._event, self._data, self._has_id, self._size = "", [], False, 0
        return message
