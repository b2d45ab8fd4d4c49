"""uvicorn's HTTP protocol with one write for a response's head and body where it makes two."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class OneWriteProtocol(HttpToolsProtocol):
    """Give it to uvicorn as `http=`.

    uvicorn writes the head when the application starts the response and the body when it comes, a system call
    and (with TCP_NODELAY) a packet each. Holding the head back until the first byte of the body, at most one
    turn of the loop, is worth a fifth of the gateway's throughput: docs/adr/0002.
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(_HeadHolder(cast(asyncio.Transport, transport), self.loop))

    def handle_websocket_upgrade(self) -> None:
        holder = self.transport
        if isinstance(holder, _HeadHolder):
            holder.flush()
            self.transport = holder.plain
        super().handle_websocket_upgrade()


class _HeadHolder(asyncio.Transport):
    """A transport that keeps a response's head until more comes, the transport closes, or the loop turns."""

    __slots__ = ("_head", "_loop", "plain", "write_plain")

    def __init__(self, plain: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self.plain = plain
        self.write_plain = plain.write
        self._loop = loop
        self._head = b""

    def write(self, data: bytes) -> None:  # type: ignore[override]
        if self._head:
            head, self._head = self._head, b""
            if len(data) > 16384:
                self.plain.writelines((head, data))
            else:
                self.write_plain(head + data)
        elif data.startswith(b"HTTP/1.1 ") and data[9:10] != b"1":
            self._head = data
            self._loop.call_soon(self.flush)
        elif data:
            self.write_plain(data)

    def flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self.write_plain(head)

    def close(self) -> None:
        self.flush()
        self.plain.close()

    def abort(self) -> None:
        self._head = b""
        self.plain.abort()

    def is_closing(self) -> bool:
        return self.plain.is_closing()

    def pause_reading(self) -> None:
        self.plain.pause_reading()

    def resume_reading(self) -> None:
        self.plain.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.plain.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.plain.set_protocol(protocol)

    def get_write_buffer_size(self) -> int:
        return self.plain.get_write_buffer_size() + len(self._head)
