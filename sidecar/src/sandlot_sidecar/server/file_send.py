"""Sends files with bounded memory: whole ones by sendfile, windows up to a maximum size."""

from __future__ import annotations

import asyncio
import os
import stat as modes

from sandlot_contract.headers import MODE, MTIME

from ..core.errors import ApiError, ClientGone
from ..executor.errors import from_os
from .executor_client import STATUS
from .ranges import parse_range, window

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .request import Answer, Request

KIND = "application/octet-stream"
PIECE = 256 * 1024
STEP = 64 << 20  # a file that shrinks is noticed after at most this many bytes
MAX_READ = 10 << 20


async def send_file(request: Request, fd: int, stat: dict[str, Any]) -> None:
    """Send a file or a range of it. If the file shrinks, the connection is cut."""
    size = _size(fd)
    headers = [(MODE, str(stat.get("mode", ""))), (MTIME, str(stat.get("mtime", "")))]
    if size == 0:
        await _send_unsized(request, fd, tuple(headers))
        return
    part = parse_range(request.header(b"range"), size=size)
    start, length = part or (0, size)
    headers.append(("Accept-Ranges", "bytes"))
    if part is not None:
        headers.append(("Content-Range", f"bytes {start}-{start + length - 1}/{size}"))
    status = 200 if part is None else 206
    small = length <= PIECE or request.head_only
    try:
        data = os.pread(fd, length, start) if small and not request.head_only else b""
    except OSError as error:
        raise _unreadable(error) from error
    answer = request.start(status=status, kind=KIND, length=length, headers=tuple(headers))
    if small:
        if len(data) < length and not request.head_only:
            await answer.write(data)
            request.connection.abort()
            return
        answer.finish(data)
        return
    await answer.write(b"")
    sent = await _sendfile(request, answer, fd, start, length)
    if sent < length:
        request.connection.abort()
        return
    answer.finish()


class _File:
    """The interface that `loop.sendfile` needs of a file; does not own the descriptor."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd


async def _sendfile(request: Request, answer: Answer, fd: int, start: int, length: int) -> int:
    """Send by sendfile where the file system supports it; return the number of bytes sent."""
    transport = request.connection.transport
    encrypted = transport.get_extra_info("encrypted")
    loop = asyncio.get_running_loop()
    sent = 0
    file: Any = _File(fd)
    while sent < length:
        try:
            if encrypted:
                raise asyncio.SendfileNotAvailableError
            step = await loop.sendfile(
                transport, file, offset=start + sent, count=min(length - sent, STEP), fallback=False
            )
        except asyncio.SendfileNotAvailableError:  # the file system does not support it, or TLS encrypts
            try:
                data = os.pread(fd, min(length - sent, PIECE), start + sent)
            except OSError:
                return sent
            step = len(data)
            await answer.write(data)
        except (OSError, RuntimeError) as error:
            request.connection.abort()  # the file may have failed, and the client still waits for the rest
            raise ClientGone("the connection broke in the middle of the file") from error
        if step <= 0:
            break
        sent += step
    return sent


async def _send_unsized(request: Request, fd: int, headers: tuple[tuple[str, str], ...]) -> None:
    """Send a file of size 0: empty, or like those in /proc that have content all the same."""
    try:
        data = os.read(fd, PIECE)
    except OSError as error:
        raise _unreadable(error) from error
    if not data:
        request.start(kind=KIND, length=0, headers=headers).finish()
        return
    answer = request.start(kind=KIND, headers=headers)
    while data:
        await answer.write(data)
        try:
            data = os.read(fd, PIECE)
        except OSError:
            request.connection.abort()
            return
    answer.finish()


def _unreadable(error: OSError) -> ApiError:
    """Return the error of a failed read; user code can make a path a link to a file in /proc that fails to read."""
    found = from_os(error, field="path")
    return ApiError(
        STATUS.get(found.code, 503), found.code, f"cannot read the file: {found.message}", field="path"
    )


def _size(fd: int) -> int:
    found = os.fstat(fd)
    if modes.S_ISDIR(found.st_mode):
        raise ApiError(
            409, "is_directory", "the path is a directory: list it, or name a file in it", field="path"
        )
    if not modes.S_ISREG(found.st_mode):
        raise ApiError(400, "bad_path", "only regular files can be read, and this is none", field="path")
    return found.st_size


async def read_window(fd: int, *, offset: int, length: int | None, maximum: int) -> tuple[bytes, int, int]:
    """Return (bytes, their offset, the file's size). Raises ApiError: 413, or for a failed read."""
    size = _size(fd)
    try:
        if size == 0:  # empty, or like the files in /proc: read until the end
            return await _unsized_window(fd, offset=offset, length=length, maximum=maximum)
        return await _sized_window(fd, size, offset=offset, length=length, maximum=maximum)
    except OSError as error:
        raise _unreadable(error) from error


async def _sized_window(
    fd: int, size: int, *, offset: int, length: int | None, maximum: int
) -> tuple[bytes, int, int]:
    start, count = window(size=size, offset=offset, length=length, maximum=maximum)
    pieces, position = [], start
    while position < start + count:
        piece = os.pread(fd, min(PIECE, start + count - position), position)
        if not piece:
            break
        pieces.append(piece)
        position += len(piece)
        await asyncio.sleep(0)
    return b"".join(pieces), start, size


async def _unsized_window(
    fd: int, *, offset: int, length: int | None, maximum: int
) -> tuple[bytes, int, int]:
    data = bytearray()
    while len(data) <= maximum:
        piece = os.read(fd, PIECE)
        if not piece:
            break
        data += piece
        await asyncio.sleep(0)
    start, count = window(size=len(data), offset=offset, length=length, maximum=maximum)
    return bytes(data[start : start + count]), start, len(data)
