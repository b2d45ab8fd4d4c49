"""Copies directories between this machine and a sandbox: as one tar stream, or file by file where that cannot be."""

from __future__ import annotations

import os
import tarfile
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from sandlot._async.process import AsyncProcess
from sandlot._async.sandbox import AsyncSandbox
from sandlot._protocol.calls import new_id
from sandlot._tasks_async import run_blocking
from sandlot.errors import Conflict, FileConflict, FileMissing, FileTooLarge
from sandlot.integrations.harbor.unpacking import unpack
from sandlot.models import ExecResult, Exit, Stderr, Stdout

IN_MEMORY = 8 << 20  # bytes of an archive before it goes to a temporary file
PIECE = 256 << 10
NO_TAR = 127
NO_DIRECTORY = 120
IN_FILE = 121  # the archive is in a file of the sandbox
STREAMED = 48 << 20  # bytes of an archive as output, which is cut at 64 MiB
LONGEST = 16 << 30  # bytes that come back from a sandbox without a limit of its disk

# Owners are those of the machine that packed the files, and mean nothing in the sandbox.
UNPACK = 'command -v tar >/dev/null || exit 127; mkdir -p "$0" && exec tar -xof - -C "$0"'
# A file is several times as fast as a command's output, which needs no room on the sandbox's disk.
PACK = """
command -v tar >/dev/null || exit 127
cd "$0" || exit 120
umask 077
if [ "$(du -sk . | cut -f1)" -gt 1024 ]; then
    tar -cf "$1" . 2>/dev/null
    [ $? -le 1 ] && exit 121
    rm -f "$1"
fi
exec tar -cf - .
"""


async def upload_directory(box: AsyncSandbox, source: Path, target: str) -> None:
    """Copy what is in a directory, with modes, links and empty directories. Raises FileConflict, OSError."""
    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as archive:
        await run_blocking(lambda: _pack(source, archive))
        process = await box.start(["sh", "-c", UNPACK, target], user="root", cwd="/")
        async with process:
            await _feed(process, archive)
            result = await process.wait()
    if result.exit_code == NO_TAR:
        await box.files.upload(source, target)
    elif not result.ok:
        raise FileConflict(f"{target}: could not unpack the upload: {_reason(result)}", path=target)


async def download_directory(box: AsyncSandbox, source: str, target: Path) -> None:
    """Copy what is in a directory of the sandbox; names that lead out of the target are left out.

    A directory that cannot be one archive is copied file by file, without its links.
    Raises FileMissing, FileTooLarge (more than the sandbox's disk holds: hostile code can make holes), FileConflict.
    """
    limit = Limit(box, source)
    kept = f"/tmp/.sandlot-{new_id()}.tar"
    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as archive:
        errors: list[bytes] = []
        stream = await box.exec(["sh", "-c", PACK, source, kept], user="root", cwd="/", stream=True)
        end: Exit | None = None
        async with stream:
            async for event in stream:
                match event:
                    case Stdout():
                        archive.write(event.data)
                        if archive.tell() > STREAMED:  # holes, which tar would read for hours
                            break
                    case Stderr():
                        errors.append(event.data)
                    case Exit():
                        end = event
        if end is None or end.exit_code == NO_TAR:
            await box.files.download(source, target, on_bytes=limit.count)
        elif end.exit_code == NO_DIRECTORY:
            raise FileMissing(f"{source}: no such directory in the sandbox", path=source)
        elif end.exit_code == IN_FILE:
            try:
                async for piece in box.files.stream(kept):
                    limit.count(len(piece))
                    archive.write(piece)
            finally:
                await box.files.remove(kept, missing_ok=True)
            await run_blocking(lambda: unpack(archive, target))
        elif end.exit_code in (0, 1):  # 1: a file changed while tar read it
            await run_blocking(lambda: unpack(archive, target))
        else:
            text = b"".join(errors).decode("utf-8", "replace").strip()[-400:]
            raise FileConflict(
                f"{source}: could not pack it for the download: {text or end.verdict}", path=source
            )


class Limit:
    """Counts the bytes of a download, up to what the sandbox's disk can hold."""

    def __init__(self, box: AsyncSandbox, path: str) -> None:
        self._path = path
        self._left = box.info.disk or LONGEST

    def count(self, size: int) -> None:
        """Raise FileTooLarge for more than that."""
        self._left -= size
        if self._left < 0:
            reason = "it is longer than the sandbox's disk, so it has holes: remove it in the sandbox"
            raise FileTooLarge(f"{self._path}: {reason}", path=self._path)


def _reason(result: ExecResult) -> str:
    return result.stderr.strip()[-400:] or str(result.verdict)


async def _feed(process: AsyncProcess, archive: IO[bytes]) -> None:
    archive.seek(0)
    with suppress(Conflict):  # it has ended; its result says why
        async for piece in _pieces(archive):
            await process.write(piece)
        await process.close_stdin()


async def _pieces(file: IO[bytes]) -> AsyncIterator[bytes]:
    while piece := await run_blocking(lambda: file.read(PIECE)):
        yield piece


def _pack(source: Path, archive: IO[bytes]) -> None:
    """Pack the entries, not the directory itself: its mode is that of a temporary one as often as not."""
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for entry in sorted(os.listdir(source)):
            tar.add(source / entry, arcname=entry)
