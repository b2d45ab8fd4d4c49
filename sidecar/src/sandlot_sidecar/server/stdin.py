"""The way into an op: bytes counted from its begin, written as the pipe or the terminal takes them."""

from __future__ import annotations

import asyncio
import os

from ..core.errors import ApiError
from .recent import Recent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from ..core.op import Op
    from .output import OpOutput
    from .request import BodyStream

    class Run(Protocol):
        """The op whose input it is. `watchers` are woken when it begins, when it shows something, and at its end."""

        op: Op
        output: OpOutput
        watchers: list[asyncio.Future[None]]


END_OF_FILE = b"\x04"  # what a terminal in line mode reads as the end
PATIENCE = 30.0  # seconds that an op may take nothing


class OpInput:
    """Of one op, a pipe or its terminal; `offset` is the number of bytes taken so far."""

    def __init__(self, run: Run, *, terminal: bool) -> None:
        self._run = run
        self._terminal = terminal
        self._lock = asyncio.Lock()
        self._inputs = Recent()  # bytes taken of each input that has an id
        self.offset = 0
        self._theirs = self._pipe = -1
        if not terminal:
            self._theirs, self._pipe = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(self._pipe, False)

    def give(self) -> int:
        """The command's end of the pipe, which is the caller's then."""
        fd, self._theirs = self._theirs, -1
        return fd

    async def take(
        self, body: BodyStream | None, *, offset: int | None, dedupe: str | None, eof: bool
    ) -> None:
        """Write what comes, but what was taken already: before `offset`, or under the id `dedupe`."""
        async with self._lock:
            begin = offset or 0
            if dedupe is not None:
                begin = self.offset - (self._inputs.get(dedupe) or 0)
            if begin > self.offset:
                raise ApiError(
                    409,
                    "stdin_gap",
                    "bytes before this offset are missing: go on at the offset in this answer",
                    offset=self.offset,
                )
            skip = self.offset - begin
            try:
                while body is not None and (data := await body.read()):
                    if skip:
                        data, skip = data[skip:], max(0, skip - len(data))
                    if data:
                        await self._write(data)
            finally:
                if dedupe is not None:
                    self._inputs.put(dedupe, self.offset - begin)
            if eof:
                await self._end()

    def _fd(self) -> int:
        """-1 where it is not there (yet, or any more). Raises a 409."""
        self._run.op.check_stdin(offset=self.offset)
        return self._run.output.master if self._terminal else self._pipe

    async def _write(self, data: bytes) -> None:
        """All of it. Raises 408 `stdin_full` when nothing was taken for PATIENCE."""
        with memoryview(data) as view:
            done = 0
            while done < len(view):
                fd = self._fd()
                try:
                    written = os.write(fd, view[done:]) if fd >= 0 else 0
                except (BlockingIOError, InterruptedError):
                    written = 0
                except OSError as error:
                    raise ApiError(
                        409, "stdin_closed", "the op has closed its input", offset=self.offset
                    ) from error
                done += written
                self.offset += written
                if not written:
                    await self._writable(fd)

    async def _writable(self, fd: int) -> None:
        """Wait until the pipe takes more, the op begins, or it ends."""
        loop, run = asyncio.get_running_loop(), self._run
        ready = loop.create_future()
        run.watchers.append(ready)
        if fd >= 0:
            loop.add_writer(fd, _set, ready)
        try:
            done, _ = await asyncio.wait([ready], timeout=PATIENCE)
        finally:
            if fd >= 0 and fd in (run.output.master, self._pipe):
                loop.remove_writer(fd)
            if ready in run.watchers:
                run.watchers.remove(ready)
        if not done:
            raise ApiError(
                408,
                "stdin_full",
                "the op has not read its input in time: go on at the offset in this answer",
                offset=self.offset,
            )

    async def _end(self) -> None:
        """End of file, which a terminal stays open after."""
        if not self._terminal:
            if self._run.op.close_stdin():
                self._close_pipe()
        elif self._run.op.verdict is None:
            offset = self.offset
            await self._write(END_OF_FILE)
            self.offset = offset

    def close(self) -> None:
        """Close both ends, also the command's where it was never launched."""
        self._close_pipe()
        if self._theirs >= 0:
            os.close(self._theirs)
            self._theirs = -1

    def _close_pipe(self) -> None:
        """Close this end of the pipe, which is end of file for its reader."""
        if self._pipe >= 0:
            asyncio.get_running_loop().remove_writer(self._pipe)
            os.close(self._pipe)
            self._pipe = -1


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
