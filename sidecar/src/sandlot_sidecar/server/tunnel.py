"""TCP tunnels into the sandbox: after a 101 the connection carries raw bytes both ways, with half-close."""

from __future__ import annotations

import asyncio
import socket

from sandlot_contract.sidecar import TCP_UPGRADE

from .carrying import reset_transport
from .http import Route
from .upgrades import asked_port, switching

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .http import Http
    from .instance import Instance
    from .request import Connection, Request


class TunnelRoutes:
    """Handler of `POST /v1/tcp`."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def add_to(self, http: Http) -> None:
        """Register the route."""
        http.add("POST", "/v1/tcp", Route(self.open, upgrades=True, streams=False))

    async def open(self, request: Request) -> None:
        """Connect to the port and hand the connection over to a tunnel."""
        port = asked_port(request, TCP_UPGRADE)
        _, (fd,) = await self._instance.executor.ask("connect", descriptors=1, port=port)
        sock = socket.socket(fileno=fd)
        sock.setblocking(False)
        connection = request.connection
        if request.gone:
            sock.close()
            return
        tunnel = Tunnel(connection)
        try:
            await asyncio.get_running_loop().create_connection(lambda: tunnel, sock=sock)
        except BaseException:
            sock.close()
            raise
        instance = self._instance
        instance.use.stream_begins()
        tunnel.on_closed = instance.use.stream_ends
        connection.begin_tunnel(tunnel, request, switching(TCP_UPGRADE))


class Tunnel(asyncio.Protocol):
    """The inner connection; the HTTP connection is the outer one and calls the `outer_` methods."""

    def __init__(self, outer: Connection) -> None:
        self._outer = outer
        self._inner: Any = None
        self._outer_done = False
        self._inner_done = False
        self.on_closed: Any = None

    def connection_made(self, transport: Any) -> None:
        self._inner = transport
        transport.set_write_buffer_limits(high=256 * 1024)
        transport.pause_reading()  # until the 101 has been sent

    def begin(self) -> None:
        """Let bytes flow, after the 101 has been sent."""
        self._inner.resume_reading()

    def data_received(self, data: bytes) -> None:
        self._outer.write(data)

    def eof_received(self) -> bool:
        self._inner_done = True
        self._outer.transport.write_eof()
        if self._outer_done:
            self._outer.transport.close()
        return not self._outer_done

    def connection_lost(self, exc: Exception | None) -> None:
        if self.on_closed is not None:
            self.on_closed()
            self.on_closed = None
        if exc is not None:
            reset_transport(self._outer.transport)
        else:
            self._outer.transport.close()

    def pause_writing(self) -> None:
        self._outer.transport.pause_reading()

    def resume_writing(self) -> None:
        self._outer.transport.resume_reading()

    def outer_data(self, data: bytes) -> None:
        """Forward bytes from the client."""
        self._inner.write(data)

    def outer_eof(self) -> bool:
        """Forward the client's end of file; return True to keep its connection open for what still comes back."""
        self._outer_done = True
        if not self._inner.is_closing():
            self._inner.write_eof()
        if self._inner_done:
            self._inner.close()
        return not self._inner_done

    def outer_lost(self) -> None:
        """Handle the loss of the client."""
        if self._outer_done:
            self._inner.close()
        else:
            reset_transport(self._inner)

    def outer_paused(self) -> None:
        """Pause reading: the client reads slower than the sandbox writes."""
        self._inner.pause_reading()

    def outer_resumed(self) -> None:
        """Resume reading."""
        self._inner.resume_reading()
