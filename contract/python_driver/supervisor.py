"""The first process, which speaks the protocol and never runs code of cells."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections import deque
from typing import Any

from .cells import Answers, Cell
from .child import Child
from .processes import how_ended, kill_descendants, reap
from .protocol import SLACK, Corrupt, Lines, clipped, encode, is_name, is_object, is_seconds

GRACE = 2.0  # seconds from a timeout's interrupt to the kill
KILLED_TOO = 1.0  # seconds until this process is killed, too, if its child was for the memory limit
KNOWN_IDS = 10_000  # cells whose repetition is noticed
READ = 1 << 16


def ignore(number: int, frame: object) -> None:
    """Handle a signal whose arrival is noticed by its byte in the wakeup pipe."""


class Supervisor:
    """Takes requests from descriptor 0, and runs their cells one after the other in a child."""

    def __init__(self, total: int) -> None:
        self._answers = Answers(total)
        self._requests = Lines()
        self._queue: deque[Cell] = deque()
        self._known: dict[str, None] = {}
        self._cell: Cell | None = None
        self._child: Child | None = None
        self._lost = ""  # why there is no child
        self._count = 0
        self._ending = False  # no further requests come
        self._wake, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(self._wake, False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, ignore)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Serve requests until the end of the input, until an `end` is done, or until the output is used up."""
        self._start(None)
        while True:
            self._next()
            if self._ending and self._cell is None:
                break
            ready = self._poll()
            if self._wake in ready:
                os.read(self._wake, READ)
                ended = reap()
                if self._child is not None and self._child.pid in ended:
                    self._ended(ended[self._child.pid])
            child = self._child
            if child is not None and child.control in ready:
                self._control(child)
            if child is not None and child is self._child:
                if child.outgoing:
                    child.flush()
                for name, fd in list(child.streams.items()):
                    if fd in ready:
                        self._read(child, name)
            if 0 in ready and not self._input():
                break
            self._check_time()
        kill_descendants()

    def _poll(self) -> list[int]:
        poll = select.poll()
        if not self._ending:
            poll.register(0, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        child = self._child
        if child is not None:
            for fd in (child.control, *child.streams.values()):
                poll.register(fd, select.POLLIN)
            if child.outgoing:
                poll.register(child.commands, select.POLLOUT)
        wait = None
        if self._cell is not None and self._cell.deadline is not None:
            wait = max(0.0, self._cell.deadline - time.monotonic()) * 1000 + 1
        return [fd for fd, _ in poll.poll(wait)]

    # requests

    def _input(self) -> bool:
        data = os.read(0, READ)
        if not data:
            return False
        try:
            lines = self._requests.feed(data)
        except Corrupt:
            return False
        for line in lines:
            try:
                request = json.loads(line)
                kind, name = request["type"], request["id"]
                cell = Cell(request) if kind == "run" else None
                if not is_name(name):
                    continue
            except (ValueError, TypeError, KeyError, RecursionError):
                continue
            if cell is not None and name not in self._known:
                self._know(name)
                self._queue.append(cell)
            elif kind == "end":
                self._ending = True
                break
            elif kind == "interrupt":
                self._interrupt(name, kill_after=request.get("kill_after"))
            elif kind == "restart" and name not in self._known:
                self._know(name)
                if self._child is None or request.get("only_lost") is not True:
                    self._restart(name)
        return True

    def _know(self, name: str) -> None:
        self._known[name] = None
        if len(self._known) > KNOWN_IDS:
            del self._known[next(iter(self._known))]

    def _interrupt(self, name: str | None, *, kill_after: Any) -> None:
        if self._cell is not None and name in (None, self._cell.id):
            self._interrupt_running(self._cell)
            if is_seconds(kill_after):
                self._cell.timed_out = True
                self._cell.deadline = time.monotonic() + kill_after
            return
        cell = next((cell for cell in self._queue if cell.id == name), None)
        if cell is not None:
            self._queue.remove(cell)
        elif name is None or name in self._known:
            return
        else:
            # Its request is still on its way, from a client that no longer waits. It is answered now, since it will
            # be ignored as a repetition.
            self._know(name)
            cell = Cell({"id": name, "code": ""})
        error = {"name": "KeyboardInterrupt", "value": "", "traceback": ["KeyboardInterrupt\n"]}
        self._answers.done(cell, "error", error=error)

    def _interrupt_running(self, cell: Cell) -> None:
        cell.interrupted = True
        if cell.started and self._child is not None:  # before, the child ignores it
            self._child.interrupt()

    def _restart(self, name: str) -> None:
        self._lose("the context was restarted")
        while self._queue:
            self._refuse(self._queue.popleft(), "the context was restarted")
        self._count = 0
        self._start(name)

    # the child

    def _start(self, restart: str | None) -> None:
        self._child = Child()
        self._lost = ""
        self._answers.send(
            {"type": "ready", "id": restart, "python": ".".join(map(str, sys.version_info[:3]))}
        )

    def _next(self) -> None:
        while self._queue and self._cell is None:
            cell = self._queue.popleft()
            if self._answers.left < cell.left + SLACK:
                message = (
                    "the context has used up its output: what it may write in all, not what one cell may"
                )
                self._refuse(cell, message)
                kill_descendants()
                raise SystemExit(0)
            if self._child is None:
                self._refuse(cell, self._lost)
                continue
            self._cell = cell
            self._count += 1
            cell.begun = time.monotonic()
            if cell.timeout is not None:
                cell.deadline = cell.begun + cell.timeout
            self._answers.send({"type": "begin", "id": cell.id, "execution_count": self._count})
            self._child.outgoing = encode({"code": cell.code, "count": self._count, "env": cell.env})
            self._child.flush()

    def _refuse(self, cell: Cell, message: str) -> None:
        self._known.pop(cell.id, None)  # else its repetition, after a restart, has no answer
        self._answers.done(cell, "refused", message=message)

    def _check_time(self) -> None:
        cell, child = self._cell, self._child
        if cell is None or child is None or cell.deadline is None or time.monotonic() < cell.deadline:
            return
        if cell.timed_out:
            self._lose("the cell reached its time limit and ignored the interrupt", status="timeout")
        else:
            cell.timed_out = True
            cell.deadline = time.monotonic() + GRACE
            self._interrupt_running(cell)

    def _control(self, child: Child) -> None:
        data = os.read(child.control, READ)
        if not data:
            for _ in range(100):  # an ending process closes it a moment before its end
                pid, status = os.waitpid(child.pid, os.WNOHANG)
                if pid:
                    self._ended(status)
                    return
                time.sleep(0.005)
            self._lose("its process closed its connection to the context")
            return
        try:
            for line in child.lines.feed(data):
                self._message(child, line)
        except Corrupt as error:
            self._lose(f"its process sent an invalid message: {error}")

    def _message(self, child: Child, line: bytes) -> None:
        try:
            message: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise Corrupt("no JSON") from error
        self._take(child, message)

    def _take(self, child: Child, message: Any) -> None:
        if not is_object(message):
            raise Corrupt("no object")
        for name in list(child.streams):  # written before it, so also delivered before it
            self._read(child, name)
        cell = self._cell
        kind, data, metadata = message.get("type"), message.get("data"), message.get("metadata")
        if kind in ("display", "result") and is_object(data) and is_object(metadata):
            if cell is not None:
                self._answers.bounded(cell, {"type": kind, "id": cell.id, "data": data, "metadata": metadata})
        elif kind == "started" and cell is not None:
            cell.started = True
            if cell.interrupted:
                child.interrupt()
        elif kind == "done" and cell is not None:
            error = clipped(message.get("error"))
            for name, decoder in child.decoders.items():
                self._text(name, decoder.decode(b"", True))
            self._cell = None
            status = "timeout" if cell.timed_out else "ok" if error is None else "error"
            self._answers.done(cell, status, error=error)
        else:
            raise Corrupt("an unknown message")

    def _read(self, child: Child, name: str) -> None:
        fd = child.streams[name]
        for _ in range(32):  # a writer that never stops must not keep the rest waiting
            try:
                data = os.read(fd, READ)
            except BlockingIOError:
                return
            if not data:
                os.close(child.streams.pop(name))
                return
            self._text(name, child.decoders[name].decode(data))

    def _text(self, name: str, text: str) -> None:
        if (
            text and self._cell is not None
        ):  # what a cell's threads and programs write after its end is dropped
            self._answers.bounded(self._cell, {"type": name, "id": self._cell.id, "text": text})

    def _ended(self, status: int) -> None:
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            time.sleep(KILLED_TOO)  # else chance decides whether the child's end or the limit is told
        self._lose("its Python process " + how_ended(status))

    def _lose(self, reason: str, *, status: str = "died") -> None:
        """Give up the child, which is dead or must be, and end its cell."""
        child, self._child = self._child, None
        self._lost = reason
        if child is not None:
            for name in list(child.streams):
                self._read(child, name)
            child.close()
        kill_descendants()
        cell, self._cell = self._cell, None
        if cell is not None:
            self._answers.done(cell, "timeout" if cell.timed_out else status, message=reason, lost=True)
        elif child is not None:
            self._answers.send({"type": "lost", "message": reason})
