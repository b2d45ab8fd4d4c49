"""Writes files by way of a temporary file in the same directory, which is renamed over the target once complete."""

from __future__ import annotations

import asyncio
import errno
import os

from ..core.errors import ApiError, bad_input
from ..executor.errors import CODES
from .executor_client import STATUS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Any

    from .instance import Instance


class FileWriter:
    """Writes files into the sandbox of one instance."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    async def write(self, path: str, pieces: AsyncIterator[bytes], **options: Any) -> int:
        """Write a file and return its size in bytes; on any failure the temporary file is removed."""
        if path.rpartition("/")[2] in ("", ".", ".."):
            # Resolved, it would name a file beside the directory that was meant.
            raise bad_input(f"path must end in a file name, and {path} names a directory", field="path")
        executor, disk = self._instance.executor, self._instance.disk
        acting = {"user": options["user"]} if "user" in options else {}
        # A task of its own: if the client goes while the executor responds, the temporary file must still be removed.
        creating = self._instance.tasks.spawn_quiet(
            executor.ask("file", descriptors=1, op="create", path=path, **given(options))
        )
        try:
            answer, (fd,) = await asyncio.shield(creating)
        except asyncio.CancelledError:
            creating.add_done_callback(lambda done: self._abort_created(done, acting))
            raise
        temp, size, done = answer["temp"], 0, False
        try:
            async for piece in pieces:
                disk.check(size + len(piece))
                with memoryview(piece) as view:
                    written = 0
                    while written < len(view):
                        written += os.write(fd, view[written : written + 262144])
                size += len(piece)
            os.close(fd)
            fd = -1
            await executor.ask("file", op="commit", temp=temp, path=path, **acting)
            disk.wrote(size)
            done = True
        except OSError as error:
            raise _disk_error(error, path) from error
        finally:
            if fd >= 0:
                os.close(fd)
            if not done:
                self._instance.tasks.spawn_quiet(executor.ask("file", op="abort", temp=temp, **acting))
        return size

    def _abort_created(self, creating: asyncio.Task[Any], acting: dict[str, Any]) -> None:
        if not creating.cancelled() and creating.exception() is None:
            answer, fds = creating.result()
            for fd in fds:
                os.close(fd)
            executor = self._instance.executor
            self._instance.tasks.spawn_quiet(executor.ask("file", op="abort", temp=answer["temp"], **acting))


def given(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that are not None."""
    return {name: value for name, value in options.items() if value is not None}


def _disk_error(error: OSError, path: str) -> ApiError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ApiError(
            507, "disk_full", "the sandbox's disk is full: remove files, or create one with more", path=path
        )
    if error.errno == errno.EFBIG:
        return ApiError(413, "too_large", "the file is too large for the sandbox's file system", path=path)
    code = CODES.get(error.errno or 0)
    if code is not None:
        return ApiError(STATUS[code], code, f"cannot write the file: {error.strerror}", path=path)
    return ApiError(503, "io_error", f"cannot write the file: {error.strerror}", path=path)
