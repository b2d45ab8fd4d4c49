"""Writes many small files into a sandbox as a few archives, and reads them so, where its image has a tar."""

from __future__ import annotations

import io
import posixpath
import tarfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from sandlot._async.sandbox import AsyncSandbox
from sandlot._protocol.calls import new_id
from sandlot.errors import FileError, StartFailed

FEWEST = 16  # files; fewer are as quick one by one
MOST = 16 << 20  # bytes of an archive, which is in memory
# A name with a dash at its front would be an option.
PACK = ["/bin/sh", "-c", 'exec tar -chf "$1" -C / -T "$2"', "sh"]
_OF_A_FILE = (
    4 << 10
)  # bytes of an archive beside a file's content, its name and that of a hard link's other file
_SLACK = 1 << 20  # bytes at the end of an archive; tars fill up their last record
UNPACK = ["/bin/sh", "-c", 'exec tar -xpmf "$1" -C /', "sh"]

Id = str | int | None  # of a user or group; None: the user's own group
Left = Callable[[], float]  # returns seconds, or raises if none are left
Source = TypeVar("Source")


@dataclass(frozen=True, slots=True)
class Small(Generic[Source]):
    """A file to write; `source` says what to read for it."""

    target: str
    size: int
    mode: int
    user: Id
    group: Id
    source: Source


class AsyncPacker(Generic[Source]):
    """Writes into one sandbox. `read` returns the contents of several files, or None if it cannot read them at once."""

    def __init__(
        self,
        box: AsyncSandbox,
        read: Callable[[Sequence[Source]], Awaitable[list[bytes] | None]],
        *,
        left: Left,
    ) -> None:
        self._box = box
        self._read = read
        self._left = left
        self._ids: dict[tuple[Id, Id], tuple[int, int]] = {}

    async def write(self, files: Sequence[Small[Source]]) -> list[Source]:
        """Write files whose directories exist; return those that must be written one by one."""
        pending = list(files)
        while len(pending) >= FEWEST:
            size = count = 0
            while count < len(pending) and size < MOST:
                size += pending[count].size
                count += 1
            # Whatever failed, such as a tar that is missing, writes one by one say what is wrong.
            if not await self._write(pending[:count]):
                break
            del pending[:count]
        return [file.source for file in pending]

    async def _write(self, batch: Sequence[Small[Source]]) -> bool:
        contents = await self._read([file.source for file in batch])
        if contents is None:
            return False
        buffer = io.BytesIO()
        # GNU's tar, BusyBox and BSD's read this format, with names of any length and bytes.
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for file, content in zip(batch, contents, strict=True):
                member = tarfile.TarInfo(file.target.lstrip("/"))
                member.size, member.mode, member.mtime = len(content), file.mode, int(time.time())
                member.uid, member.gid = await self._ids_of(file, content)
                archive.addfile(member, io.BytesIO(content))
        path = _path()
        try:
            self._left()
            await self._box.files.write(path, buffer.getvalue(), mode=0o600, owner=0, group=0)
            done = await self._box.exec([*UNPACK, path], user=0, cwd="/", timeout=self._left())
            ok = done.ok
        except (FileError, StartFailed):  # no room for both the archive and its files, or no shell
            ok = False
        await self._box.files.remove(path, missing_ok=True)
        return ok

    async def _ids_of(self, file: Small[Source], content: bytes) -> tuple[int, int]:
        """Return the numbers of a file's owner; the sandbox knows those of names, once such a file is written."""
        if isinstance(file.user, int) and isinstance(file.group, int):
            return file.user, file.group
        key = (file.user, file.group)
        if key not in self._ids:
            files = self._box.files
            await files.write(file.target, content, mode=file.mode, owner=file.user, group=file.group)
            info = await files.stat(file.target)
            self._ids[key] = (info.uid, info.gid)
        return self._ids[key]


async def read_files(box: AsyncSandbox, planned: Mapping[str, int], *, left: Left) -> dict[str, bytes] | None:
    """Return the contents of files of a sandbox: `planned` has their absolute paths and sizes; None if it cannot.

    Code of the sandbox may be hostile, and may have made its tar: nothing else and nothing larger is taken.
    """
    if any("\n" in path for path in planned):
        return None
    names = "".join(f".{path}\n" for path in planned).encode("utf-8", "surrogateescape")
    most = sum(planned.values()) + _OF_A_FILE * len(planned) + 2 * len(names) + _SLACK
    listed, packed = _path(), _path()
    try:
        await box.files.write(listed, names, owner=0, group=0)
        done = await box.exec([*PACK, packed, listed], user=0, cwd="/", timeout=left())
        archive = await _bounded(box, packed, most) if done.ok else None
    except (FileError, StartFailed):
        archive = None
    for path in (listed, packed):
        await box.files.remove(path, missing_ok=True)
    return None if archive is None else contents(archive, planned)


async def _bounded(box: AsyncSandbox, path: str, most: int) -> bytes | None:
    """Return what a file has, or None if that is more than `most` bytes."""
    if (await box.files.stat(path)).size > most:
        return None
    found = bytearray()
    async for piece in box.files.stream(path):
        found += piece
        if len(found) > most:
            return None
    return bytes(found)


def contents(packed: bytes, planned: Mapping[str, int]) -> dict[str, bytes] | None:
    """Return the contents of the planned files, or None if the archive lacks one of them as planned."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:") as archive:
            for number, member in enumerate(archive):
                if number >= len(planned):
                    return None
                path = posixpath.normpath(f"/{member.name}")
                if member.islnk():  # not by tarfile, which reads the whole file for each of them
                    content = found.get(posixpath.normpath(f"/{member.linkname}"))
                elif member.isreg() and not member.issparse() and member.size == planned.get(path):
                    file = archive.extractfile(member)
                    content = None if file is None else file.read()
                else:
                    return None
                if content is None or len(content) != planned.get(path):
                    return None
                found[path] = content
    # What tarfile raises depends on the field of a header that is wrong.
    except (tarfile.TarError, LookupError, ValueError, OverflowError, RecursionError, EOFError):
        return None
    return found if found.keys() == planned.keys() else None


def _path() -> str:
    return f"/.sandlot-copy-{new_id()}"
