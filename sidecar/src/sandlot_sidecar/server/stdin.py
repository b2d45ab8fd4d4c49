"""Standard input of an op, written as its pipe or terminal accepts it and counted from the op's begin."""

from __future__ import annotations

import asyncio
import os

from ..core.errors import ApiError
from .dedupe_cache import DedupeCache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from ..core.op import Op
    from .output import OpOutput
    from .request import BodyStream

    class Run(Protocol):
        """The op that reads this input; its `watchers` are woken by its begin, its output and its end."""

        op: Op
        output: OpOutput
        watchers: list[asyncio.Future[None]]


END_OF_FILE = b"\x04"  # read as end of file by a terminal in line mode
PATIENCE = 30.0  # seconds without the op reading anything


class OpInput:
    """Input of one op, by a pipe or its terminal; `offset` is the number of bytes accepted so far."""

    def __init__(self, run: Run, *, terminal: bool) -> None:
        self._run = run
        self._terminal = terminal
        self._lock = asyncio.Lock()
        self._inputs = DedupeCache()  # input id -> bytes accepted
        self.offset = 0
        self._theirs = self._pipe = -1
        if not terminal:
            self._theirs, self._pipe = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(self._pipe, False)

    def give(self) -> int:
        """Return the command's end of the pipe, which the caller then owns."""
        fd, self._theirs = self._theirs, -1
        return fd

    async def take(
        self, body: BodyStream | None, *, offset: int | None, dedupe: str | None, eof: bool
    ) -> None:
        """Write a body, except what was accepted already: before `offset`, or under the id `dedupe`. Raises ApiError."""
        async with self._lock:
            begin = offset or 0
            if dedupe is not None:
                begin = self.offset - (self._inputs.get(dedupe) or 0)
            if begin > self.offset:
                raise ApiError(
                    409,
                    "stdin_gap",
                    "bytes before this offset are missing: continue at `offset` of this answer",
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
        """Return the descriptor, or -1 before the op's begin and after its end. Raises a 409."""
        self._run.op.check_stdin(offset=self.offset)
        return self._run.output.master if self._terminal else self._pipe

    async def _write(self, data: bytes) -> None:
        """Write all bytes. Raises 408 `stdin_full` if none were accepted for PATIENCE."""
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
                        409,
                        "stdin_closed",
                        "the op has closed its standard input",
                        offset=self.offset,
                    ) from error
                done += written
                self.offset += written
                if not written:
                    await self._writable(fd)

    async def _writable(self, fd: int) -> None:
        """Wait until the pipe accepts more, the op begins, or it ends."""
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
                "the op did not read its input in time: continue at `offset` of this answer",
                offset=self.offset,
            )

    async def _end(self) -> None:
        """Send end of file; a terminal stays open."""
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
