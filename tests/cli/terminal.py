"""A command on a terminal of its own, typed to and read as a person would."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time

from tests.waiting import SECONDS


class Terminal:
    """A process on a terminal of its own."""

    def __init__(self, arguments: list[str], env: dict[str, str]) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            # A shell's background jobs ignore ^C, and their children would too.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execve(sys.executable, [sys.executable, "-m", "sandlot", *arguments], env)
        self.seen = ""

    def resize(self, *, cols: int, rows: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def read_until(self, text: str) -> None:
        deadline = time.monotonic() + SECONDS
        while text not in self.seen:
            ready, _, _ = select.select([self.fd], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"no {text!r} in {self.seen!r}"
            data = self._read()
            assert data, f"it ended without {text!r}: {self.seen!r}"
            self.seen += data.decode("utf-8", "replace")
        self.seen = self.seen.partition(text)[2]

    def rest(self) -> list[str]:
        """The lines until its end."""
        while data := self._read():
            self.seen += data.decode("utf-8", "replace")
        return self.seen.strip().splitlines()

    def code(self) -> int:
        while self._read():
            pass
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)

    def _read(self) -> bytes:
        """Nothing once the other side is gone."""
        try:
            return os.read(self.fd, 65536)
        except OSError:
            return b""
