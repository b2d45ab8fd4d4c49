"""Carries datagrams into the sandbox: after a 101, frames of a connection are those of one socket in there."""

from __future__ import annotations

import asyncio
import socket

from sandlot_contract.datagram_drops import rejected
from sandlot_contract.datagrams import DatagramReader, frame
from sandlot_contract.sidecar import UDP_UPGRADE

from .http import Route
from .upgrades import asked_port, switching

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .http import Http
    from .instance import Instance
    from .request import Connection, Request
    from .use import Use

BATCH = 64  # datagrams before the sidecar's other work has its turn
_BATCH_BYTES = 128 * 1024


class DatagramRoutes:
    """Handler of `POST /v1/udp`."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._buffer = bytearray(65536)  # for all tunnels, which never wait while they use it

    def add_to(self, http: Http) -> None:
        """Register the route."""
        http.add("POST", "/v1/udp", Route(self.open, upgrades=True, streams=False))

    async def open(self, request: Request) -> None:
        """Open a socket in the sandbox and hand the connection over to its tunnel."""
        port = asked_port(request, UDP_UPGRADE)
        use = self._instance.use
        stops = use.stops
        _, (fd,) = await self._instance.executor.ask("connect", descriptors=1, port=port, datagrams=True)
        sock = socket.socket(fileno=fd)
        sock.setblocking(False)
        if use.stops != stops and not request.gone:
            request.connection.abort()  # the socket is connected to the sandbox before the reset
        if use.stops != stops or request.gone:
            sock.close()
            return
        tunnel = DatagramTunnel(request.connection, sock=sock, use=use, buffer=self._buffer)
        request.connection.begin_tunnel(tunnel, request, switching(UDP_UPGRADE))


class DatagramTunnel:
    """One client's datagrams; the HTTP connection is the outer one and calls the `outer_` methods.

    It is no use of the sandbox: a forged datagram now and then would keep it from its idle timeout.
    """

    def __init__(self, outer: Connection, *, sock: socket.socket, use: Use, buffer: bytearray) -> None:
        self._outer = outer
        self._sock = sock
        self._use = use
        self._loop = asyncio.get_running_loop()
        self._frames = DatagramReader()
        self._buffer = buffer
        self._sending = False
        self._begun = False
        self._paused = False
        self.closed = False
        # Else a reset would leave the socket connected to the port of the sandbox before it.
        use.cut_at_stop.add(self._cut)

    def begin(self) -> None:
        """Let datagrams of the sandbox flow, after the 101 has been sent."""
        self._begun = True
        self._listen()

    def outer_data(self, data: bytes) -> None:
        """Send the client's datagrams to the port."""
        self._frames.feed(data)
        if not self._sending:
            self._send()

    def outer_eof(self) -> bool:
        """Return that the connection is to be closed: without the client nothing is sent to it."""
        return False

    def outer_lost(self) -> None:
        """Close the socket, as the client is gone."""
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._sock)
        self._use.datagrams_dropped += rejected(self._sock)
        self._sock.close()
        self._use.cut_at_stop.discard(self._cut)

    def outer_paused(self) -> None:
        """Stop reading: the client is slower than the sandbox, and the kernel drops what its buffer cannot hold."""
        self._paused = True
        if not self.closed:
            self._loop.remove_reader(self._sock)

    def outer_resumed(self) -> None:
        """Resume reading."""
        self._paused = False
        self._listen()

    def _listen(self) -> None:
        if self._begun and not self._paused and not self.closed:
            self._loop.add_reader(self._sock, self._receive)

    def _cut(self) -> None:
        self._outer.abort()
        self.outer_lost()

    def _send(self) -> None:
        """Send a batch; the rest follows when others have had their turn, and no more is read until then."""
        self._sending = False
        for _ in range(BATCH):
            if self.closed:
                return
            try:
                payload = self._frames.read()
            except ValueError:
                self._cut()
                return
            if payload is None:
                self._outer.resume("datagrams")
                return
            self._send_one(payload)
        self._sending = True
        self._outer.pause("datagrams")
        self._loop.call_soon(self._send)

    def _send_one(self, payload: bytes) -> None:
        for _ in range(2):
            try:
                self._sock.send(payload)
                return
            except ConnectionRefusedError:
                continue  # of an earlier datagram, to which nothing listened: this one was not sent yet
            except OSError:
                break
        self._use.datagrams_dropped += 1

    def _receive(self) -> None:
        pieces: list[bytes] = []
        size = 0
        for _ in range(BATCH):
            try:
                length = self._sock.recv_into(self._buffer)
            except ConnectionRefusedError:
                continue  # nothing listens on the port: as with any UDP port, the client hears nothing
            except OSError:
                break
            pieces.append(frame(memoryview(self._buffer)[:length]))
            size += length
            if size > _BATCH_BYTES:
                break
        if pieces:
            self._outer.write(b"".join(pieces))
