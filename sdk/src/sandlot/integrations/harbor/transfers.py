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
from sandlot.integrations.harbor.unpacking import UnreadableArchive, unpack
from sandlot.models import ExecResult, Exit, Stderr, Stdout, Verdict

IN_MEMORY = 8 << 20  # bytes of an archive before it goes to a temporary file
PIECE = 256 << 10
NO_TAR = 127
NO_DIRECTORY = 120
IN_FILE = 121  # the archive is in a file of the sandbox
CUT_SHORT = 122
TAR_SECONDS = 600.0  # for the sandbox's tar, which its code may have replaced
SLOWEST = 1 << 20  # bytes of an upload in a second
STREAMED = 48 << 20  # bytes of an archive as output, which is cut at 64 MiB
LONGEST = 16 << 30  # bytes that come back from a sandbox without a limit of its disk

# Owners are those of the machine that packed the files, and mean nothing in the sandbox.
UNPACK = 'command -v tar >/dev/null || exit 127; mkdir -p "$0" && exec tar -xof - -C "$0"'
# A file is several times as fast as a command's output, which needs no room on the sandbox's disk.
# Only GNU tar's exit code 1 means that a file changed while it was read; others end so after any error.
PACK = """
command -v tar >/dev/null || exit 127
cd "$0" || exit 120
case $(tar --version 2>/dev/null </dev/null) in
*"GNU tar"*) format=--format=gnu changed=1 ;;
*bsdtar*) format=--format=gnutar changed=0 ;;
*) format= changed=0 ;;
esac
umask 077
if [ "$(du -sk . | cut -f1)" -gt 1024 ]; then
    tar $format -cf "$1" . 2>/dev/null
    [ $? -le $changed ] && exit 121
    rm -f "$1"
fi
tar $format -cf - .
code=$?
[ $code -le $changed ] && exit 0
[ $code = 1 ] && exit 122
exit $code
"""


async def upload_directory(
    box: AsyncSandbox, source: Path, target: str, *, seconds: float = TAR_SECONDS
) -> None:
    """Copy what is in a directory, with modes, links and empty directories. Raises FileConflict, OSError.

    It copies file by file, without links, if the sandbox's tar is not done in `seconds`, longer for a long archive.
    """
    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as archive:
        await run_blocking(lambda: _pack(source, archive))
        limit = seconds + archive.tell() / SLOWEST
        process = await box.start(["sh", "-c", UNPACK, target], user="root", cwd="/", timeout=limit)
        async with process:
            await _feed(process, archive)
            result = await process.wait()
    if result.exit_code == NO_TAR or result.verdict == Verdict.TIMEOUT:
        await box.files.upload(source, target)
    elif not result.ok:
        raise FileConflict(f"{target}: could not unpack the upload: {_reason(result)}", path=target)


async def download_directory(
    box: AsyncSandbox, source: str, target: Path, *, seconds: float = TAR_SECONDS
) -> None:
    """Copy what is in a directory of the sandbox; names that lead out of the target are left out.

    A directory that does not become one archive in `seconds` is copied file by file, without its links.
    Raises FileMissing, FileTooLarge (more than the sandbox's disk holds: hostile code can make holes), FileConflict.
    """
    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as archive:
        if await _fetch(box, source, archive, seconds):
            with suppress(UnreadableArchive):
                await run_blocking(lambda: unpack(archive, target))
                return
    await box.files.download(source, target, on_bytes=Limit(box, source).count)


async def _fetch(box: AsyncSandbox, source: str, archive: IO[bytes], seconds: float) -> bool:
    """Write an archive of a directory, False if there can be none."""
    kept = f"/tmp/.sandlot-{new_id()}.tar"
    errors: list[bytes] = []
    stream = await box.exec(
        ["sh", "-c", PACK, source, kept], user="root", cwd="/", timeout=seconds, stream=True
    )
    end: Exit | None = None
    async with stream:
        async for event in stream:
            match event:
                case Stdout():
                    archive.write(event.data)
                    if archive.tell() > STREAMED:  # holes, which tar would read for hours
                        return False
                case Stderr():
                    errors.append(event.data)
                case Exit():
                    end = event
    assert end is not None  # a stream ends with it, or raises
    if end.verdict == Verdict.TIMEOUT:
        await _remove(box, kept)
    if end.verdict != Verdict.EXITED or end.exit_code in (NO_TAR, CUT_SHORT):
        return False
    if end.exit_code == NO_DIRECTORY:
        raise FileMissing(f"{source}: no such directory in the sandbox", path=source)
    if end.exit_code == IN_FILE:
        return await _fetch_file(box, kept, archive, Limit(box, source))
    if end.exit_code != 0:
        text = b"".join(errors).decode("utf-8", "replace").strip()[-400:]
        reason = text or f"exit code {end.exit_code}"
        raise FileConflict(f"{source}: could not pack it for the download: {reason}", path=source)
    return True


async def _fetch_file(box: AsyncSandbox, kept: str, archive: IO[bytes], limit: Limit) -> bool:
    try:
        async for piece in box.files.stream(kept):
            limit.count(len(piece))
            archive.write(piece)
    except (FileMissing, FileConflict):  # the sandbox's code has removed or replaced it
        return False
    finally:
        await _remove(box, kept)
    return True


async def _remove(box: AsyncSandbox, kept: str) -> None:
    with suppress(FileConflict):  # the sandbox's code has replaced it
        await box.files.remove(kept, missing_ok=True)


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
