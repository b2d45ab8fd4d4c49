"""The framing between server, executor and runners: JSON messages with descriptors, over two kinds of socket."""

from __future__ import annotations

import array
import json
import os
import select
import socket

# Only annotations need these: importing `typing` would cost every sidecar 0.5 MiB.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    Message = dict[str, Any]

MAX_CONTROL = 64 * 1024 * 1024
MAX_PACKET = 60 * 1024
MAX_FDS = 16
_INT = array.array("i").itemsize
# Plain numbers: the flags of `socket` are enums, whose `|` costs 2 µs each time.
_ROOM = socket.CMSG_SPACE(MAX_FDS * _INT)
_RIGHTS = (int(socket.SOL_SOCKET), int(socket.SCM_RIGHTS))
_CUT = int(socket.MSG_CTRUNC | socket.MSG_TRUNC)
_CLOSE_ON_EXEC = int(socket.MSG_CMSG_CLOEXEC)
_NO_SIGNAL = int(socket.MSG_NOSIGNAL)


class WireError(Exception):
    """The other side sent something that is no message."""


def dumps(message: Message) -> bytes:
    """Encode a message; what is no text becomes JSON escapes, so a lone surrogate travels unharmed."""
    return json.dumps(message, separators=(",", ":")).encode("ascii")


def loads(data: bytes | bytearray) -> Message:
    """Decode one JSON object; raises WireError."""
    try:
        message = json.loads(bytes(data))
    except ValueError as error:
        raise WireError(f"not a message: {error}") from error
    if not isinstance(message, dict):
        raise WireError("not a message: a JSON object is needed")
    return message


def close_all(fds: Sequence[int]) -> None:
    """Close descriptors that nobody wants."""
    for fd in fds:
        os.close(fd)


def _receive(sock: socket.socket, size: int) -> tuple[bytes, list[int]]:
    data, ancillary, flags, _ = sock.recvmsg(size, _ROOM, _CLOSE_ON_EXEC)
    fds: list[int] = []
    for level, kind, payload in ancillary:
        if (level, kind) == _RIGHTS:
            received = array.array("i")
            received.frombytes(payload[: len(payload) - len(payload) % _INT])
            fds.extend(received)
    if flags & _CUT:
        close_all(fds)
        raise WireError("a message was cut")
    return data, fds


def send_some(sock: socket.socket, data: bytes | memoryview, fds: Sequence[int]) -> int:
    """Send what a non-blocking socket takes now, the descriptors with the first byte; 0: nothing. Raises OSError."""
    rights = [(*_RIGHTS, array.array("i", fds))] if fds else []
    try:
        return sock.sendmsg([data], rights, _NO_SIGNAL)
    except BlockingIOError:
        return 0


def _send(sock: socket.socket, data: bytes | memoryview, fds: Sequence[int]) -> int:
    while not (sent := send_some(sock, data, fds)):
        poll = select.poll()
        poll.register(sock, select.POLLOUT)
        poll.poll()
    return sent


class Decoder:
    """Cuts a control socket's bytes into messages; works with blocking and non-blocking sockets.

    A message that carries descriptors says how many in `fds`: they arrive in order, at the latest with the
    message's own bytes, but the kernel may hand them over together with the end of an earlier message.
    """

    def __init__(self) -> None:
        self._data = bytearray()
        self._fds: list[int] = []

    def receive(self, sock: socket.socket) -> list[tuple[Message, list[int]]] | None:
        """Read once; None at end of file, else the messages complete by now (maybe none).

        Raises BlockingIOError, OSError, WireError. The descriptors (close-on-exec) belong to the caller.
        """
        data, fds = _receive(sock, 65536)
        self._fds.extend(fds)
        if not data:
            self.close()
            return None
        self._data += data
        complete: list[tuple[Message, list[int]]] = []
        while len(self._data) >= 4:
            length = int.from_bytes(self._data[:4], "big")
            if length > MAX_CONTROL:
                raise WireError("a message is too long")
            if len(self._data) < 4 + length:
                break
            message = loads(self._data[4 : 4 + length])
            del self._data[: 4 + length]
            count = message.pop("fds", 0)
            complete.append((message, self._fds[:count]))
            del self._fds[:count]
        return complete

    def close(self) -> None:
        """Close the descriptors of messages that never became complete."""
        close_all(self._fds)
        self._fds.clear()


def control(message: Message) -> bytes:
    """The bytes of a control message. Raises WireError."""
    payload = dumps(message)
    if len(payload) > MAX_CONTROL:  # the other side would hang up
        raise WireError("the message is too long")
    return len(payload).to_bytes(4, "big") + payload


def send(sock: socket.socket, message: Message, fds: Sequence[int] = ()) -> None:
    """Send one control message; waits while the socket is full, also when it is non-blocking. Raises WireError."""
    data = memoryview(control({**message, "fds": len(fds)} if fds else message))
    sent = _send(sock, data, fds)
    while sent < len(data):
        sent += _send(sock, data[sent:], ())


def packet(message: Message) -> tuple[bytes, list[int]]:
    """A message of a runner's channel: its bytes, and for a long one the memfd that it travels in, to be closed."""
    payload = dumps(message)
    if len(payload) <= MAX_PACKET:
        return payload, []
    memory = os.memfd_create("message", os.MFD_CLOEXEC)
    try:
        view = memoryview(payload)
        while view:
            view = view[os.write(memory, view) :]
    except OSError:
        os.close(memory)
        raise
    return dumps({"memfd": len(payload)}), [memory]


def send_packet(sock: socket.socket, message: Message, fds: Sequence[int] = ()) -> None:
    """Send one message on a runner's channel; waits while it is full."""
    data, memory = packet(message)
    try:
        _send(sock, data, [*fds, *memory])
    finally:
        close_all(memory)


def receive_packet(sock: socket.socket) -> tuple[Message, list[int]] | None:
    """Receive one message of a runner's channel; None at end of file. Raises BlockingIOError, WireError."""
    data, fds = _receive(sock, 65536)
    if not data:
        close_all(fds)
        return None
    message = loads(data)
    size = message.get("memfd")
    if size is None:
        return message, fds
    if not fds:
        raise WireError("a long message without its descriptor")
    memory = fds.pop()
    try:
        content = bytearray()
        while len(content) < size:
            part = os.pread(memory, size - len(content), len(content))
            if not part:
                close_all(fds)
                raise WireError("a long message is cut")
            content += part
    finally:
        os.close(memory)
    return loads(content), fds
