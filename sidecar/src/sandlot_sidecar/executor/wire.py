"""The protocol of server, executor and runners: framed JSON messages with descriptors, over two kinds of socket."""

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
# Plain integers: `|` on the enums of `socket` costs 2 µs each time.
_ROOM = socket.CMSG_SPACE(MAX_FDS * _INT)
_RIGHTS = (int(socket.SOL_SOCKET), int(socket.SCM_RIGHTS))
_CUT = int(socket.MSG_CTRUNC | socket.MSG_TRUNC)
_CLOSE_ON_EXEC = int(socket.MSG_CMSG_CLOEXEC)
_NO_SIGNAL = int(socket.MSG_NOSIGNAL)


class WireError(Exception):
    """The peer sent an invalid message, or a message is too long."""


def dumps(message: Message) -> bytes:
    """Encode a message as ASCII; JSON escapes preserve lone surrogates."""
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
    """Close all these descriptors."""
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
    """Send what a non-blocking socket accepts; descriptors go with the first byte. 0: full. Raises OSError."""
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
    """Decodes messages from a blocking or non-blocking control socket.

    A message with descriptors has their number in `fds`. They arrive in order, at the latest with the message's own
    bytes, but the kernel may deliver them with the end of an earlier message.
    """

    def __init__(self) -> None:
        self._data = bytearray()
        self._fds: list[int] = []

    def receive(self, sock: socket.socket) -> list[tuple[Message, list[int]]] | None:
        """Read once; return the messages that are now complete (maybe none), or None at end of file.

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
        """Close the descriptors of incomplete messages."""
        close_all(self._fds)
        self._fds.clear()


def control(message: Message) -> bytes:
    """Encode a control message with its length. Raises WireError."""
    payload = dumps(message)
    if len(payload) > MAX_CONTROL:  # the peer would reject it and close the socket
        raise WireError("the message is too long")
    return len(payload).to_bytes(4, "big") + payload


def send(sock: socket.socket, message: Message, fds: Sequence[int] = ()) -> None:
    """Send one control message; waits while the socket is full, even a non-blocking one. Raises WireError."""
    data = memoryview(control({**message, "fds": len(fds)} if fds else message))
    sent = _send(sock, data, fds)
    while sent < len(data):
        sent += _send(sock, data[sent:], ())


def packet(message: Message) -> tuple[bytes, list[int]]:
    """Encode a message for a runner's channel; return its bytes, and for a long one a memfd to close."""
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
    """Send one message on a runner's channel; waits while the channel is full."""
    data, memory = packet(message)
    try:
        _send(sock, data, [*fds, *memory])
    finally:
        close_all(memory)


def receive_packet(sock: socket.socket) -> tuple[Message, list[int]] | None:
    """Receive one message on a runner's channel; return None at end of file. Raises BlockingIOError, WireError."""
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
