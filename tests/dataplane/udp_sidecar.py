"""A sidecar's `/v1/udp` in a few lines: each connection is one UDP socket towards a port of this machine."""

from __future__ import annotations

import asyncio
import socket

from sandlot_contract.datagrams import DatagramReader, frame

from tests.dataplane.upstreams import Peer


class UdpSidecar:
    """`POST /v1/udp?port=N` leads to 127.0.0.1:`target`; after a datagram `stall`, a connection is not read until `go`."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.opened = 0
        self.ended = 0
        self.carried = 0
        self.go = asyncio.Event()

    async def __call__(self, peer: Peer) -> None:
        request = await peer.request()
        assert request.target.startswith("/v1/udp?port="), request.target
        self.opened += 1
        with socket.socket(type=socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.connect(("127.0.0.1", self.target))
            peer.send(
                b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: sandlot-udp\r\n\r\n"
            )
            down = asyncio.create_task(_down(sock, peer))
            try:
                await self._up(peer, sock)
            finally:
                self.ended += 1
                down.cancel()
                await asyncio.wait([down])

    async def _up(self, peer: Peer, sock: socket.socket) -> None:
        frames = DatagramReader()
        while data := await peer.reader.read(65536):
            frames.feed(data)
            while (payload := frames.read()) is not None:
                if payload == b"stall":
                    await self.go.wait()
                self.carried += 1
                sock.send(payload)


async def _down(sock: socket.socket, peer: Peer) -> None:
    loop = asyncio.get_running_loop()
    while True:
        data = await loop.sock_recv(sock, 65536)
        peer.send(frame(data))
        await peer.writer.drain()
