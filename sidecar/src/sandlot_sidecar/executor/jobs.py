"""Runs long requests in child processes of the executor, and answers them when the child exits."""

from __future__ import annotations

import os
import signal
import socket

from . import syscalls, wire
from .children import Process
from .errors import ExecutorError, from_os
from .replies import refusal, unexpected

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .replies import Answer, Replies


class Jobs:
    """The running jobs."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies
        self._running: dict[int, tuple[Process, int, socket.socket, wire.Decoder]] = {}

    def descriptors(self) -> list[int]:
        """Return one descriptor per job, which becomes readable when the job is done."""
        return list(self._running)

    def start(self, seq: Any, work: Callable[[], Answer]) -> None:
        """Run `work` in a forked child, with this process's state and descriptors; raises OSError."""
        parent_end, child_end = socket.socketpair()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _child(work, seq=seq, channel=child_end, parent=parent)
        child_end.close()
        self._running[parent_end.fileno()] = (Process(pid), seq, parent_end, wire.Decoder())

    def on_readable(self, fd: int) -> None:
        """Read from the job whose descriptor is readable; send its answer once that is complete, as one may be long."""
        process, seq, channel, decoder = self._running[fd]
        try:
            messages = decoder.receive(channel)
        except (OSError, wire.WireError):
            messages = None
        if messages == []:
            return
        del self._running[fd]
        decoder.close()
        channel.close()
        process.reap()
        if not messages:
            self._replies.refuse(
                seq,
                ExecutorError("internal", "the operation was interrupted: its process was killed; try again"),
            )
            return
        self._replies.send(*messages[0])

    def end_all(self) -> None:
        """Kill all jobs and answer each with an error."""
        for fd in list(self._running):
            self._running[fd][0].kill()
            while fd in self._running:  # a killed job's channel ends
                self.on_readable(fd)


def _child(work: Callable[[], Answer], *, seq: Any, channel: socket.socket, parent: int) -> None:
    try:
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)
        try:
            document, fds = work()
            wire.send(channel, {"seq": seq, "ok": True, **document}, fds)
        except ExecutorError as error:
            wire.send(channel, refusal(seq, error))
        except OSError as error:
            wire.send(channel, refusal(seq, from_os(error)))
        except Exception as error:
            wire.send(channel, refusal(seq, unexpected(error)))
    finally:
        os._exit(0)
