"""Archives that clients upload for the COPY steps of their builds, by the hash that the SDK gives them.

They are in the directory of checkpoints, so that the gateway that builds need not be the one that took the upload.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

from ..failures import Problem

KEPT = 3600.0  # seconds after its last use
MOST_BYTES = 256 << 20  # of one archive
_MOST_OF_TENANT = 1 << 30  # bytes
_MOST_COUNT = 100  # of a tenant
_AT_ONCE = 4  # uploads of a tenant to one gateway
_PIECE = 1 << 20
_IN_MEMORY = 1 << 20  # bytes gathered for one write


class Archives:
    def __init__(self) -> None:
        self._uploading: dict[Path, int] = {}

    def present(self, directory: Path, files_hash: str) -> bool:
        """Return whether a tenant's archive is there, and keep it for another while. Raises OSError."""
        path = _path(directory, files_hash)
        try:
            os.utime(path)
        except FileNotFoundError:
            return False
        return True

    async def take(self, directory: Path, files_hash: str, pieces: AsyncIterator[bytes]) -> None:
        """Keep an upload, of which nothing stays if it breaks off. Raises Problem, OSError and what `pieces` raises."""
        if self._uploading.get(directory, 0) >= _AT_ONCE:
            raise Problem(
                429, f"{_AT_ONCE} uploads run already: wait for one", headers=[(b"retry-after", b"1")]
            )
        self._uploading[directory] = self._uploading.get(directory, 0) + 1
        path = _path(directory, files_hash)
        part = path.with_suffix(f".{secrets.token_hex(8)}.part")
        try:
            room = await asyncio.to_thread(_room, directory, but=path)
            with await asyncio.to_thread(part.open, "xb") as file:
                await _write(file, pieces, room=room)
            await asyncio.to_thread(part.replace, path)
        finally:
            part.unlink(missing_ok=True)
            self._uploading[directory] -= 1
            if not self._uploading[directory]:
                del self._uploading[directory]

    async def open(self, directory: Path, files_hash: str) -> BinaryIO | None:
        """Open an archive, which can be read to its end from then on. Raises OSError."""
        try:
            return await asyncio.to_thread(_path(directory, files_hash).open, "rb")
        except FileNotFoundError:
            return None


async def content(file: BinaryIO) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(file.read, _PIECE):
        yield piece


async def _write(file: BinaryIO, pieces: AsyncIterator[bytes], *, room: int) -> None:
    size, held, gathered = 0, list[bytes](), 0
    async for piece in pieces:
        size += len(piece)
        if size > min(MOST_BYTES, room):
            text = (
                f"the archive is larger than {MOST_BYTES} bytes: copy less"
                if size > MOST_BYTES
                else f"the tenant's archives have {_MOST_OF_TENANT} bytes, as many as it may: wait an hour"
            )
            raise Problem(413, text, headers=[(b"connection", b"close")])
        held.append(piece)
        gathered += len(piece)
        if gathered >= _IN_MEMORY:
            await asyncio.to_thread(file.write, b"".join(held))
            held, gathered = [], 0
    await asyncio.to_thread(file.write, b"".join(held))


def _path(directory: Path, files_hash: str) -> Path:
    return directory / "files" / f"{files_hash}.tar"


def sweep(directory: Path) -> dict[Path, int]:
    """Delete a tenant's old archives; return the others with their sizes. Raises OSError."""
    files = directory / "files"
    before = time.time() - KEPT
    left: dict[Path, int] = {}
    for path in files.iterdir() if files.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):
            found = path.stat()
            if found.st_mtime < before:
                path.unlink()
            else:
                left[path] = found.st_size
    return left


def _room(directory: Path, *, but: Path) -> int:
    """Return how many bytes another archive may have, which may replace one. Raises Problem."""
    (directory / "files").mkdir(parents=True, exist_ok=True, mode=0o700)
    others = {path: size for path, size in sweep(directory).items() if path != but}
    count, size = len(others), sum(others.values())
    if count >= _MOST_COUNT:
        text = f"the tenant has {count} archives of the last hour, as many as it may: wait an hour"
        raise Problem(413, text, headers=[(b"connection", b"close")])
    return _MOST_OF_TENANT - size
