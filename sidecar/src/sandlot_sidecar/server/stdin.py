"""The way into an op: bytes counted from its begin, written as the pipe or the terminal takes them."""

from __future__ import annotations

import asyncio
import os

from .errors import ApiError
from .machine import ENDED
from .recent import Recent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from .machine import Op

    class Input(Protocol):
        """The op whose input it is, with its descriptors: -1 for one that is not there (yet, or any more)."""

        op: Op
        terminal: bool
        master: int
        stdin: int
        watchers: list[asyncio.Future[None]]

        def close_stdin(self) -> None: ...


END_OF_FILE = b"\x04"  # what a terminal in line mode reads as the end


class StdinWriter:
    """One op's input; `offset` is the number of bytes taken so far."""

    def __init__(self, io: Input) -> None:
        self._io = io
        self.lock = asyncio.Lock()
        self.offset = 0
        self.ended = False
        self.inputs = Recent()  # bytes taken of each input that has an id

    def _fd(self) -> int:
        io = self._io
        if io.op.state is ENDED:
            raise ApiError(409, "op_ended", "the op has ended", verdict=io.op.verdict, offset=self.offset)
        if self.ended:
            raise ApiError(409, "stdin_closed", "end of file was sent", offset=self.offset)
        return io.master if io.terminal else io.stdin

    async def write(self, data: bytes, *, patience: float) -> None:
        """Write all of it; raises 408 `stdin_full` when nothing was taken for `patience` seconds."""
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
                    await self._writable(fd, patience)

    async def _writable(self, fd: int, patience: float) -> None:
        """Wait until the pipe takes more, the op begins, or it ends."""
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        self._io.watchers.append(ready)
        if fd >= 0:
            loop.add_writer(fd, _set, ready)
        try:
            done, _ = await asyncio.wait([ready], timeout=patience)
        finally:
            if fd >= 0 and fd in (self._io.master, self._io.stdin):
                loop.remove_writer(fd)
            if ready in self._io.watchers:
                self._io.watchers.remove(ready)
        if not done:
            raise ApiError(
                408,
                "stdin_full",
                "the op has not read its input in time: go on at the offset in this answer",
                offset=self.offset,
            )

    async def end(self) -> None:
        """End of file."""
        if self.ended or self._io.op.state is ENDED:
            return
        if self._io.terminal:
            offset = self.offset
            await self.write(END_OF_FILE, patience=30.0)
            self.offset = offset
            return
        self.ended = True
        self._io.close_stdin()


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
