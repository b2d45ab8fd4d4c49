"""The first process's side of the child."""

from __future__ import annotations

import codecs
import os
import signal

from .kernel import become_child
from .protocol import Lines


class Child:
    """The process that runs the cells, with this side's ends of its pipes."""

    def __init__(self) -> None:
        commands, self.commands = os.pipe()
        self.control, control = os.pipe()
        stdout, out = os.pipe()
        stderr, err = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            for fd in (self.commands, self.control, stdout, stderr):
                os.close(fd)
            become_child(commands=commands, control=control, out=out, err=err)
        for fd in (commands, control, out, err):
            os.close(fd)
        self.streams = {"stdout": stdout, "stderr": stderr}
        for fd in (self.commands, *self.streams.values()):
            os.set_blocking(fd, False)
        self.lines = Lines()
        self.outgoing = b""
        self.decoders = {
            "stdout": codecs.getincrementaldecoder("utf-8")("replace"),
            "stderr": codecs.getincrementaldecoder("utf-8")("replace"),
        }

    def interrupt(self) -> None:
        """Send SIGINT to the child and the programs that it runs, as a terminal does."""
        try:
            os.killpg(self.pid, signal.SIGINT)
        except OSError:
            return

    def flush(self) -> None:
        """Write what the child has not been sent yet, as far as it reads."""
        try:
            self.outgoing = self.outgoing[os.write(self.commands, self.outgoing) :]
        except BlockingIOError:
            return
        except OSError:
            self.outgoing = b""  # its end is noticed by its pipes

    def close(self) -> None:
        for fd in (self.commands, self.control, *self.streams.values()):
            os.close(fd)
