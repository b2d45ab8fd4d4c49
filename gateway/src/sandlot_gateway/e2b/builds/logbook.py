"""The log of a build: lines of JSON in a file that any gateway can read, bounded in size."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec

from ..documents import iso

MOST_ENTRIES = 100  # of one answer; the SDK asks again until one is empty
_MOST_BYTES = 512 << 10  # of a build's log
_MOST_LINE = 2000  # characters of an entry
_EVERY = 0.2  # seconds between writes, as often as the SDK asks


class Entry(msgspec.Struct):
    timestamp: str
    level: str
    message: str
    step: str | None = None

    def document(self) -> dict[str, Any]:
        return msgspec.to_builtins(self)


class Log:
    """The writer, of which a build has one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pending: list[bytes] = []
        self._size = 0
        self._full = False
        self._written_at = float("-inf")

    def add(self, message: str, *, step: str | None, level: str = "info") -> None:
        if self._full:
            return
        if self._size > _MOST_BYTES:
            self._full = True
            level, message = "warn", f"the log is longer than {_MOST_BYTES} bytes: the rest is not kept"
        line = msgspec.json.encode(Entry(iso(time.time()), level, message[:_MOST_LINE], step)) + b"\n"
        self._size += len(line)
        self._pending.append(line)

    async def flush(self, *, now: bool = False) -> None:
        """Write what was added, unless that was done a moment ago. Raises OSError."""
        if not self._pending or (not now and time.monotonic() < self._written_at + _EVERY):
            return
        data, self._pending = b"".join(self._pending), []
        self._written_at = time.monotonic()
        await asyncio.to_thread(_append, self._path, data)


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def entries(path: Path, *, offset: int, limit: int = MOST_ENTRIES) -> list[Entry]:
    """Return entries of a log from a number on. Raises OSError."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]  # a last line without its end is being written
    except FileNotFoundError:
        return []
    return [msgspec.json.decode(line, type=Entry) for line in lines[offset : offset + limit]]
