"""Keeps the documents of sums in a directory, one file each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec

from sandlot_gateway.atomic_file import write_atomic
from sandlot_gateway.core.backend import BackendError
from sandlot_gateway.core.usage import Document, Stay
from sandlot_gateway.core.usage_source import RecordedStay, Source, UsageStore


class FileStore:
    """Only one gateway at a time uses the directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._turn = asyncio.Lock()

    async def load(self, *, since: int, each: Callable[[Source, Document], None]) -> None:
        await asyncio.to_thread(self._load, since, each)

    async def change(self, source: Source, change: Callable[[Document], Document | None]) -> None:
        async with self._turn:
            await asyncio.to_thread(self._change, source, change)

    async def drop_before(self, day: int) -> None:
        await asyncio.to_thread(self._drop_before, day)

    def _load(self, since: int, each: Callable[[Source, Document], None]) -> None:
        for source in self._sources():
            if source.day >= since:
                each(source, _read(self._path(source)))

    def _change(self, source: Source, change: Callable[[Document], Document | None]) -> None:
        path = self._path(source)
        changed = change(_read(path))
        if changed is None:
            return
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(path, msgspec.json.encode(changed), durable=True)
        except OSError as error:
            raise BackendError(
                f"cannot write the usage in {path}: {error.strerror}; make room, or check the directory's rights"
            ) from error

    def _drop_before(self, day: int) -> None:
        for source in self._sources():
            if source.day < day:
                self._path(source).unlink(missing_ok=True)

    def _path(self, source: Source) -> Path:
        return self._directory / f"{source.day}-{source.name}.json"

    def _sources(self) -> list[Source]:
        names = [path.stem.partition("-") for path in self._directory.glob("*-*.json")]
        return [Source(int(day), name) for day, _, name in names if day.isdigit()]


class FilesOnly:
    """The accounting of a backend whose only records are this gateway's."""

    settles = records_settle = 0.0
    unseen: float | None = None
    all_here = True
    in_sync = True

    def __init__(self, directory: Path) -> None:
        self.store: UsageStore = FileStore(directory)

    def has_record(self, stay: Stay) -> bool | None:
        return False

    def recorded(self) -> tuple[RecordedStay, ...]:
        return ()


def _read(path: Path) -> Document:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Document)
    except FileNotFoundError:
        return Document()
    except (OSError, msgspec.DecodeError) as error:
        raise BackendError(
            f"cannot read the usage in {path}: {error}; repair the file, or move it away"
        ) from error
