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
_PIECE_WITHIN = 30.0  # seconds; an upload has one of few places
_WHOLE_WITHIN = 1800.0  # seconds
_LOOKS = 10  # at a directory that changes meanwhile
_PIECE = 1 << 20
_IN_MEMORY = 1 << 20  # bytes gathered for one write


class Archives:
    """`piece_within`, `whole_within`: seconds in which the next bytes of an upload have to come, and all of them."""

    def __init__(
        self,
        *,
        piece_within: float = _PIECE_WITHIN,
        whole_within: float = _WHOLE_WITHIN,
        most_of_tenant: int = _MOST_OF_TENANT,
    ) -> None:
        self._piece_within = piece_within
        self._whole_within = whole_within
        self._most_of_tenant = most_of_tenant
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
            await asyncio.to_thread(_check_count, directory, but=path)
            with await asyncio.to_thread(part.open, "xb") as file:
                await self._write(file, self._timely(pieces), part=part, path=path)
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

    async def _timely(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield pieces that come in time. Raises Problem."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._whole_within
        while True:
            within = min(loop.time() + self._piece_within, end)
            try:
                async with asyncio.timeout_at(within):
                    piece = await anext(pieces)
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                text = (
                    f"the archive's next bytes did not come within {self._piece_within:g} s: upload it again"
                    if within < end
                    else f"the archive did not come within {self._whole_within:g} s: copy less"
                )
                raise Problem(408, text, headers=[(b"connection", b"close")]) from error
            yield piece

    async def _write(self, file: BinaryIO, pieces: AsyncIterator[bytes], *, part: Path, path: Path) -> None:
        size, held, gathered = 0, list[bytes](), 0
        async for piece in pieces:
            size += len(piece)
            if size > MOST_BYTES:
                text = f"the archive is larger than {MOST_BYTES} bytes: copy less"
                raise Problem(413, text, headers=[(b"connection", b"close")])
            held.append(piece)
            gathered += len(piece)
            if gathered >= _IN_MEMORY:
                await asyncio.to_thread(self._append, file, b"".join(held), part=part, path=path)
                held, gathered = [], 0
        await asyncio.to_thread(self._append, file, b"".join(held), part=part, path=path)

    def _append(self, file: BinaryIO, data: bytes, *, part: Path, path: Path) -> None:
        """Write to an archive that is to replace `path`. Raises Problem, OSError."""
        # Each time: other uploads take of the same room, also at other gateways.
        others = _sizes(part.parent, but=(part, path))
        if sum(others.values()) + file.tell() + len(data) > self._most_of_tenant:
            text = f"the tenant's archives would have more than {self._most_of_tenant} bytes: wait an hour"
            raise Problem(413, text, headers=[(b"connection", b"close")])
        file.write(data)
        file.flush()


async def content(file: BinaryIO) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(file.read, _PIECE):
        yield piece


def _path(directory: Path, files_hash: str) -> Path:
    return directory / "files" / f"{files_hash}.tar"


def sweep(directory: Path) -> None:
    """Delete a tenant's old archives. Raises OSError."""
    files = directory / "files"
    before = time.time() - KEPT
    for path in files.iterdir() if files.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime < before:
                path.unlink()


def _check_count(directory: Path, *, but: Path) -> None:
    """Check whether there may be another archive, which may replace one. Raises Problem."""
    files = directory / "files"
    files.mkdir(parents=True, exist_ok=True, mode=0o700)
    sweep(directory)
    if (count := len(_sizes(files, but=(but,)))) >= _MOST_COUNT:
        text = f"the tenant has {count} archives of the last hour, as many as it may: wait an hour"
        raise Problem(413, text, headers=[(b"connection", b"close")])


def _sizes(files: Path, *, but: tuple[Path, ...]) -> dict[Path, int]:
    """Return the sizes of a tenant's archives, also of those that are being uploaded. Raises OSError."""
    found: dict[Path, int] = {}
    for _ in range(_LOOKS):
        found.clear()
        gone = False
        for path in files.iterdir():
            try:
                if path not in but:
                    found[path] = path.stat().st_size
            except FileNotFoundError:
                gone = True
        if not gone:
            break
        # An upload that is complete has another name now, which this look may have missed.
    return found
