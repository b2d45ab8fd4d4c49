"""The pipes or terminal that an op writes to: read into its log, and drained at its end."""

from __future__ import annotations

import fcntl
import os
import sys

from sandlot_contract.frames import STDERR, STDOUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from typing import Any

READ_SIZE = 256 * 1024
PIPE_SIZE = 1 << 20
# Limits on reads and bytes per pipe at the end of an op, as a child that keeps writing must not block us. A pipe has at
# most as many pages as PIPE_SIZE, and in packet mode (O_DIRECT) each read returns one of them, however small.
DRAIN_READS = 1024
DRAIN_BYTES = 4 * PIPE_SIZE
LOOK_AGAIN = 0.05  # seconds until the next check whether a process has opened the terminal again
_FIONREAD = 0x541B


class OpOutput:
    """Output of one op. `changed` is called when its log has grown while it was watched."""

    __slots__ = (
        "_changed", "_err", "_grown", "_log", "_look", "_loop", "_out", "_reading", "master", "over", "size",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop, log: Any, *, changed: Callable[[], None]) -> None:
        self._loop = loop
        self._log = log
        self._changed = changed
        self.master = -1
        self.size: dict[str, int] | None = None  # the terminal's last `cols` and `rows`, if they were changed
        self._out = self._err = -1
        self._reading = False
        self._grown = False
        self.over = False  # no runner holds the other ends
        self._look: asyncio.TimerHandle | None = None

    def open_pipes(self) -> tuple[int, int]:
        """Return the command's ends of stdout and stderr."""
        self._out, out = os.pipe2(os.O_CLOEXEC)
        self._err, err = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._out, False)
        os.set_blocking(self._err, False)
        return out, err

    def open_terminal(self, master: int) -> None:
        """Use a terminal in place of pipes."""
        self.master = master
        os.set_blocking(master, False)
        if self.size is not None:
            self.resize(self.size)

    def resize(self, size: dict[str, int]) -> None:
        """Change the terminal's `cols` and `rows`; one that is not open yet has them once it is."""
        self.size = size
        if self.master >= 0:
            import struct
            import termios

            window = struct.pack("HHHH", size["rows"], size["cols"], 0, 0)
            fcntl.ioctl(self.master, termios.TIOCSWINSZ, window)

    @property
    def watched(self) -> bool:
        """True if output is read as it comes; otherwise it stays in the pipes until the end."""
        return self._reading

    def watch(self) -> None:
        """Read output as it comes from now on."""
        if self._reading:
            return
        self._reading = True
        self._watch_terminal()
        if self._out >= 0:
            self._loop.add_reader(self._out, self._read, self._out, STDOUT)
            self._loop.add_reader(self._err, self._read, self._err, STDERR)

    def waiting(self) -> int:
        """Return the number of bytes in the pipes."""
        return _waiting(self._out) + _waiting(self._err)

    def drain(self) -> None:
        """Read what is there now, although other processes may hold the other ends."""
        for fd, kind in ((self.master, STDOUT), (self._out, STDOUT), (self._err, STDERR)):
            if fd >= 0:
                self._drain(fd, kind)

    def close(self) -> None:
        """Close all descriptors."""
        if self._look is not None:
            self._look.cancel()
            self._look = None
        for fd in (self.master, self._out, self._err):
            self._close(fd)

    def _read(self, fd: int, kind: int) -> int:
        """Read once and return the number of bytes; 0 if nothing is there now."""
        try:
            data = os.read(fd, READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:  # a terminal that no process has open
            data = b""
        if not data:
            if fd == self.master and not self.over:
                self._terminal_left()
            else:
                self._close(fd)
            return 0
        if len(data) >= 65536 and not self._grown and fd != self.master:
            self._grow()
        self._log.append(kind, data)
        self._changed()
        return len(data)

    def _grow(self) -> None:
        self._grown = True
        for pipe in (self._out, self._err):
            try:
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
            except OSError:  # the user's share of pipe memory is used up: slower, not wrong
                break

    def _watch_terminal(self) -> None:
        if self.master >= 0:
            self._loop.add_reader(self.master, self._read, self.master, STDOUT)

    def _terminal_left(self) -> None:
        """Handle a terminal that no process has open.

        The command is about to exit or goes on; closing our end would send it a hangup.
        """
        self._loop.remove_reader(self.master)
        self._look = self._loop.call_later(LOOK_AGAIN, self._watch_terminal)

    def _drain(self, fd: int, kind: int) -> None:
        left = DRAIN_BYTES
        for _ in range(DRAIN_READS):
            taken = self._read(fd, kind)
            if not taken:
                return
            left -= taken
            if left <= 0:
                break
        if _waiting(fd):
            self._log.truncated = True

    def _close(self, fd: int) -> None:
        if fd < 0:
            return
        if self._reading:
            self._loop.remove_reader(fd)
        if fd == self.master:
            self._loop.remove_writer(fd)
        os.close(fd)
        if fd == self.master:
            self.master = -1
        elif fd == self._out:
            self._out = -1
        elif fd == self._err:
            self._err = -1


def _waiting(fd: int) -> int:
    """Return the number of readable bytes; 0 for a terminal that no process has open."""
    try:
        return int.from_bytes(fcntl.ioctl(fd, _FIONREAD, bytes(4)), sys.byteorder)
    except OSError:
        return 0
