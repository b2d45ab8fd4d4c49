"""Runs long requests in child processes of the executor, and answers them when the child exits."""

from __future__ import annotations

import os
import signal
import socket
from collections import deque

from . import syscalls, wire
from .children import Process
from .errors import ExecutorError, from_os
from .replies import refusal, unexpected

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .replies import Answer, Replies


# Each has a process, in the memory of the sidecar: without a limit, 1,024 pending file calls use all of it.
MOST_FILE_JOBS = 8


class Jobs:
    """The running jobs, and those of files that wait for one to end."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies
        self._running: dict[int, tuple[Process, int, socket.socket, wire.Decoder]] = {}
        self._file_jobs: set[int] = set()  # descriptors, a part of those that run
        self._waiting: deque[tuple[Any, Callable[[], Answer], list[int]]] = deque()

    def descriptors(self) -> list[int]:
        """Return one descriptor per job, which becomes readable when the job is done."""
        return list(self._running)

    def start_file_job(self, seq: Any, work: Callable[[], Answer], fds: list[int] | None = None) -> None:
        """Run the work of a file call as `start` does, at most so many at once and the others in their order.

        `fds` are descriptors for the work, closed here once its process has them.
        """
        self._waiting.append((seq, work, fds or []))
        self._start_waiting()

    def _start_waiting(self) -> None:
        while self._waiting and len(self._file_jobs) < MOST_FILE_JOBS:
            seq, work, fds = self._waiting.popleft()
            try:
                self._file_jobs.add(self.start(seq, work))
            except OSError as error:
                self._replies.refuse(seq, from_os(error))
            finally:
                wire.close_all(fds)

    def start(self, seq: Any, work: Callable[[], Answer]) -> int:
        """Run `work` in a forked child, with this process's state; return its descriptor. Raises OSError."""
        parent_end, child_end = socket.socketpair()
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            parent_end.close()
            child_end.close()
            raise
        if pid == 0:
            _child(work, seq=seq, channel=child_end, parent=parent)
        child_end.close()
        fd = parent_end.fileno()
        self._running[fd] = (Process(pid), seq, parent_end, wire.Decoder())
        return fd

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
        self._file_jobs.discard(fd)
        decoder.close()
        channel.close()
        process.reap()
        if not messages:
            self._replies.refuse(seq, _interrupted())
        else:
            self._replies.send(*messages[0])
        self._start_waiting()

    def end_all(self) -> None:
        """Kill all jobs and answer each with an error, and those that wait."""
        waiting, self._waiting = self._waiting, deque()
        for seq, _, fds in waiting:
            wire.close_all(fds)
            self._replies.refuse(seq, _interrupted())
        for fd in list(self._running):
            self._running[fd][0].kill()
            while fd in self._running:  # a killed job's channel ends
                self.on_readable(fd)


def _interrupted() -> ExecutorError:
    return ExecutorError("internal", "the operation was interrupted: its process was killed; try again")


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
