"""One connection over a blocking socket, which another thread can cut."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Callable

from sandlot._cancel_sync import CancellableCall
from sandlot._protocol.http1 import ProtocolError, ResponseParser
from sandlot._protocol.messages import TransportError, os_reason

RECEIVE = 256 * 1024
EARLY = 0.01  # seconds by which the end of a wait may seem to come early


class Connection:
    """One connection: used by one thread at a time."""

    def __init__(self, sock: socket.socket, *, again: tuple[type[OSError], ...]) -> None:
        self.sock = sock
        self._again = again  # what a read that would block raises
        self.parser = ResponseParser()
        self.used = False
        self.unfinished = False  # the peer still expects bytes of the last request's body
        self.idle_since = 0.0
        self.lost = False

    def begin(self, data: bytes, *, timeout: float | None) -> None:
        self.parser = ResponseParser()
        self.unfinished = False
        self.used = True
        self.send(data, timeout=timeout)

    def send(self, data: bytes, *, timeout: float | None) -> None:
        """Send bytes. If the peer has closed its side, the next wait may still find its response."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with CancellableCall(self.cut):
            try:
                self.sock.settimeout(timeout)
                self.sock.sendall(data)
            except OSError as error:
                if _is_over(error, deadline):
                    raise TransportError(
                        f"could not send within {timeout:g} s", sent=True, timed_out=True
                    ) from error
                self.lost = True

    def answered(self) -> bool:
        """Return whether the server has begun to respond, without waiting."""
        if not self.lost and not self.parser.status:
            try:
                data = self._peek()
                if data == b"":
                    self.lost = True
                elif data:
                    self.parser.feed(data)
            except (OSError, ProtocolError):
                self.lost = True
        return self.lost or bool(self.parser.status)

    def stale(self) -> bool:
        """Return whether the server has closed this idle connection or sent unsolicited bytes."""
        try:
            return self._peek() is not None
        except OSError:
            return True

    def _peek(self) -> bytes | None:
        """Return what can be read without waiting, or None if nothing has arrived."""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        if not poll.poll(0):
            return None
        self.sock.settimeout(0)
        try:
            return self.sock.recv(RECEIVE)
        except self._again:
            return None

    def wait(self, ready: Callable[[], bool], timeout: float | None) -> None:
        """Read until `ready`, at most `timeout` seconds. Raises TransportError."""
        with CancellableCall(self.cut):
            self._read_until(ready, timeout)

    def _read_until(self, ready: Callable[[], bool], timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not ready():
            try:
                self.sock.settimeout(None if deadline is None else max(0.001, deadline - time.monotonic()))
                data = self.sock.recv(RECEIVE)
            except OSError as error:
                if _is_over(error, deadline):
                    message = f"no answer within {timeout:g} s"
                    raise TransportError(message, sent=True, timed_out=True) from error
                raise TransportError(os_reason(error), sent=True) from error
            try:
                if data:
                    self.parser.feed(data)
                else:
                    self.parser.eof()
            except ProtocolError as error:
                raise TransportError(str(error), sent=True) from error

    def cut(self) -> None:
        """Make the thread that waits on this connection return; called by another thread."""
        self.lost = True
        # Shut down the plain socket: on the TLS socket, the waiting thread would continue without TLS.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)

    def close(self) -> None:
        self.sock.close()


def _is_over(error: OSError, deadline: float | None) -> bool:
    """Return whether a wait has come to its end, up to `deadline`, and not to one that the kernel knows of.

    Raises `error` if it is the program's own: its handler of a signal raised it, as for a time limit by `alarm`.
    """
    if not isinstance(error, TimeoutError) or error.errno is not None:
        return False
    if deadline is None or time.monotonic() < deadline - EARLY:
        raise error
    return True
