"""Copies files and directories between this machine and a sandbox, several files at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sandlot._async.plane import AsyncPlane
from sandlot._local_files import upload_plan
from sandlot._local_targets import DownloadTarget, safe_name, top_file
from sandlot._protocol import documents
from sandlot._protocol.file_requests import USER, write_route
from sandlot._tasks_async import each, run_blocking
from sandlot.errors import FileMissing
from sandlot.file_records import FileMeter, TransferMeter
from sandlot.models import FileInfo

PIECE = 1 << 20
AT_ONCE = 8  # files, so that a small one does not wait for the round trip of the one before

Item = TypeVar("Item")


class AsyncCalls(Protocol):
    """The single calls of which a copy consists."""

    async def mkdir(self, path: str, *, mode: int | None = None, user: USER = None) -> None: ...

    async def stat(self, path: str, *, user: USER = None) -> FileInfo: ...

    async def list(self, path: str, *, user: USER = None) -> list[FileInfo]: ...

    def stream(self, path: str, *, user: USER = None) -> AsyncIterator[bytes]: ...


class AsyncTransfer:
    """One copy, with the rights of one user; the meter counts it."""

    def __init__(self, files: AsyncCalls, *, plane: AsyncPlane, meter: TransferMeter, user: USER) -> None:
        self._files = files
        self._plane = plane
        self._meter = meter
        self._user = user

    async def upload(self, source: Path, place: str) -> int:
        """Send a file or directory; return the bytes sent."""
        plan = await run_blocking(lambda: upload_plan(source, place))
        if self._meter.wants_total:
            files = [part for part, _, mode in plan if mode is None]
            self._meter.total = await run_blocking(lambda: sum(part.stat().st_size for part in files))

        async def make(directory: tuple[str, int]) -> None:
            await self._files.mkdir(directory[0], mode=directory[1], user=self._user)

        async def send(file: tuple[Path, str]) -> int:
            return await self._upload_file(*file)

        levels: dict[int, list[tuple[str, int]]] = {}
        for _, target, mode in plan:
            if mode is not None:
                levels.setdefault(target.rstrip("/").count("/"), []).append((target, mode))
        for level in sorted(levels):
            await _all(make, levels[level])
        return sum(await _all(send, [(part, target) for part, target, mode in plan if mode is None]))

    async def download(self, path: str, target: Path) -> int:
        """Receive a file or directory; return the bytes received."""
        info = await self._files.stat(path, user=self._user)
        targets = DownloadTarget()
        if info.type != "dir":
            self._meter.total = info.size
            return await self._download_file(targets, path, top_file(target, info), info, top=True)
        files: list[tuple[str, Path, FileInfo]] = []
        waiting = [(path, target, info)]

        async def listed(directory: tuple[str, Path, FileInfo]) -> list[FileInfo] | None:
            """Return what is in a directory, or None if it has gone."""
            try:
                entries = await self._files.list(directory[0], user=self._user)
            except FileMissing:
                if directory[2] is info:
                    raise
                return None
            make = targets.top_directory if directory[2] is info else targets.directory
            await run_blocking(lambda: make(directory[1], directory[2].mode))
            return entries

        async def receive(file: tuple[str, Path, FileInfo]) -> int:
            return await self._download_file(targets, *file, top=False)

        while waiting:
            below: list[tuple[str, Path, FileInfo]] = []
            for (directory, here, _), entries in zip(waiting, await _all(listed, waiting), strict=True):
                for entry in entries or ():
                    name = safe_name(entry)
                    inside = (f"{directory.rstrip('/')}/{name}", here / name, entry)
                    if entry.type == "dir":
                        below.append(inside)
                    elif entry.type == "file":
                        files.append(inside)
            waiting = below
        self._meter.total = sum(entry.size for _, _, entry in files)
        size = sum(await _all(receive, files))
        await run_blocking(targets.set_modes)
        return size

    async def _upload_file(self, source: Path, path: str) -> int:
        about = await run_blocking(source.stat)
        meter = FileMeter(self._meter)
        route = write_route(path, mode=about.st_mode & 0o7777, user=self._user)
        body = await self._plane.open(
            "PUT",
            route,
            headers={"Content-Type": "application/octet-stream"},
            source=lambda: _pieces(source, about.st_size, meter),
            length=about.st_size,
            timeout=300.0,
            path=path,
        )
        try:
            size = int(documents.parse(await body.read_all(timeout=300.0))["size"])
        finally:
            await body.aclose()
        meter.done()
        return size

    async def _download_file(
        self, targets: DownloadTarget, path: str, target: Path, info: FileInfo, *, top: bool
    ) -> int:
        """Receive a file; one below the top that has gone since it was listed is left out."""
        if not top:
            await run_blocking(lambda: targets.check_file(target))
        meter = FileMeter(self._meter)
        size = 0
        try:
            with targets.file(target, info.mode, top=top) as file:
                async for piece in self._files.stream(path, user=self._user):
                    file.write(piece)
                    size += len(piece)
                    meter.add(len(piece))
        except FileMissing:
            if top or size:
                raise
            return 0
        meter.done()
        return size


async def _all(function: Callable[[Item], Awaitable[Any]], items: Iterable[Item]) -> list[Any]:
    todo = list(items)
    if len(todo) == 1:
        return [await function(todo[0])]  # without a thread
    return await each(function, todo, concurrency=AT_ONCE, return_exceptions=False, progress=None)


async def _pieces(source: Path, size: int, meter: FileMeter) -> AsyncIterator[bytes]:
    """Yield at most `size` bytes, so that a file that grows during the upload does not break the request."""
    meter.begins()
    left = size
    with source.open("rb") as file:
        while left:
            piece = await run_blocking(lambda: file.read(min(PIECE, left)))  # noqa: B023
            if not piece:
                return
            left -= len(piece)
            yield piece
            meter.add(len(piece))
