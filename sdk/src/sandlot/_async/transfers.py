"""Copies files and directories between this machine and a sandbox, one file after the other."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

from sandlot._async.plane import AsyncPlane
from sandlot._local_files import download_target, safe_name, upload_plan
from sandlot._protocol import documents
from sandlot._protocol.file_requests import USER, write_route
from sandlot._tasks_async import run_blocking
from sandlot.file_records import TransferMeter
from sandlot.models import FileInfo

PIECE = 1 << 20


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
        total = 0
        for part, target, mode in plan:
            if mode is not None:
                await self._files.mkdir(target, mode=mode, user=self._user)
            else:
                total += await self._upload_file(part, target)
        return total

    async def download(self, path: str, target: Path) -> int:
        """Receive a file or directory; return the bytes received."""
        info = await self._files.stat(path, user=self._user)
        if info.type != "dir":
            self._meter.total = info.size
            return await self._download_file(path, target, info)
        total = 0
        waiting = [(path, target)]
        while waiting:
            directory, here = waiting.pop()
            here.mkdir(parents=True, exist_ok=True)
            for entry in await self._files.list(directory, user=self._user):
                name = safe_name(entry)
                inside = f"{directory.rstrip('/')}/{name}"
                if entry.type == "dir":
                    waiting.append((inside, here / name))
                elif entry.type == "file":
                    total += await self._download_file(inside, here / name, entry)
        return total

    async def _upload_file(self, source: Path, path: str) -> int:
        about = await run_blocking(source.stat)
        route = write_route(path, mode=about.st_mode & 0o7777, user=self._user)
        body = await self._plane.open(
            "PUT",
            route,
            headers={"Content-Type": "application/octet-stream"},
            source=lambda: _pieces(source, about.st_size, self._meter),
            length=about.st_size,
            timeout=300.0,
            path=path,
        )
        try:
            size = int(documents.parse(await body.read_all(timeout=300.0))["size"])
        finally:
            await body.aclose()
        self._meter.file_done()
        return size

    async def _download_file(self, path: str, target: Path, info: FileInfo) -> int:
        target = await run_blocking(lambda: download_target(target, info.name))
        partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
        size = 0
        try:
            with partial.open("wb") as file:
                async for piece in self._files.stream(path, user=self._user):
                    file.write(piece)
                    size += len(piece)
                    self._meter.add(len(piece))
            if info.mode:
                partial.chmod(int(info.mode, 8) & 0o777)
            partial.replace(target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        self._meter.file_done()
        return size


async def _pieces(source: Path, size: int, meter: TransferMeter) -> AsyncIterator[bytes]:
    """Yield at most `size` bytes, so that a file that grows during the upload does not break the request."""
    meter.file_begins()
    left = size
    with source.open("rb") as file:
        while left:
            piece = await run_blocking(lambda: file.read(min(PIECE, left)))  # noqa: B023
            if not piece:
                return
            left -= len(piece)
            yield piece
            meter.add(len(piece))
