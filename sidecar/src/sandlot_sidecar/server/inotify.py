"""Reads an inotify instance that the executor has made, without blocking the loop."""

from __future__ import annotations

import asyncio
import fcntl
import os

from ..executor import syscalls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

BUFFER = 1 << 10  # bytes of one read, at most 64 events: each can have a path of 4 KiB in the answer
_FIONREAD = 0x541B


class Inotify:
    """One instance; owns its descriptor."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """End all watches."""
        os.close(self.fd)

    def read(self) -> bytes:
        """Return some whole events, none if the kernel has none."""
        try:
            return os.read(self.fd, BUFFER)
        except BlockingIOError:
            return b""

    def queued(self) -> int:
        """Return the bytes of events that the kernel has."""
        return int.from_bytes(fcntl.ioctl(self.fd, _FIONREAD, bytes(4)), "little")

    def forget(self, numbers: Iterable[int]) -> None:
        """End watches; those that the kernel has ended already are no error."""
        for number in numbers:
            syscalls.LIBC.inotify_rm_watch(self.fd, number)

    async def readable(self, stopped: asyncio.Future[None], *, timeout: float) -> None:
        """Wait until there are events, at most so long, or until `stopped`."""
        ready = self._loop.create_future()
        self._loop.add_reader(self.fd, lambda: ready.done() or ready.set_result(None))
        try:
            await asyncio.wait([ready, stopped], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._loop.remove_reader(self.fd)
