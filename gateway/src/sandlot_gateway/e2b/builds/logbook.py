"""The log of a build: lines of JSON in a file that any gateway can read, bounded in size."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from ..documents import iso

MOST_ENTRIES = 100  # of one answer; the SDK asks again until one is empty
_MOST_BYTES = 512 << 10  # of a build's log
_MOST_LINE = 2000  # characters of an entry
_EVERY = 0.2  # seconds between two writes, as often as the SDK asks


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

    def add(self, message: str, *, step: str | None, level: str = "info") -> None:
        if self._full:
            return
        if self._size > _MOST_BYTES:
            self._full = True
            level, message = "warn", f"the log is longer than {_MOST_BYTES} bytes: the rest is not kept"
        line = msgspec.json.encode(Entry(iso(time.time()), level, message[:_MOST_LINE], step)) + b"\n"
        self._size += len(line)
        self._pending.append(line)

    async def flush(self) -> None:
        """Write what was added; what cannot be written is tried again by the next call. Raises OSError."""
        if self._pending:
            data, self._pending = b"".join(self._pending), []
            try:
                await asyncio.to_thread(_append, self._path, data)
            except OSError:
                self._pending.insert(0, data)
                raise

    @asynccontextmanager
    async def written(self) -> AsyncIterator[None]:
        """Write what is added, every moment until the block is left."""
        left = asyncio.Event()
        writing = asyncio.get_running_loop().create_task(self._write(left))
        try:
            yield
        finally:
            left.set()
            await writing  # not cancelled: a later write would overtake one that is under way

    async def _write(self, left: asyncio.Event) -> None:
        while not left.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(left.wait(), _EVERY)
            with contextlib.suppress(OSError):  # the end of the build meets it again
                await self.flush()


def _append(path: Path, data: bytes) -> None:
    with path.open("ab", buffering=0) as file:
        before = file.tell()
        try:
            while data:
                data = data[file.write(data) :]
        except OSError:
            file.truncate(before)  # half a line would make the next one unreadable
            raise


def entries(path: Path, *, offset: int, limit: int = MOST_ENTRIES) -> list[Entry]:
    """Return entries of a log from a number on. Raises OSError."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]  # a last line without its end is being written
    except FileNotFoundError:
        return []
    return [msgspec.json.decode(line, type=Entry) for line in lines[offset : offset + limit]]
