"""A gateway with a UDP exposure, its clients, and the server in the sandbox."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from sandlot_gateway.data.exposure import Exposure

from tests.dataplane.gateway import Gateway
from tests.dataplane.udp_sidecar import UdpSidecar
from tests.waiting import SECONDS

Started = tuple[Gateway, Exposure, UdpSidecar]


class Client:
    """One client's socket."""

    def __init__(self, exposure: Exposure, *, host: str = "127.0.0.1", source: str = "") -> None:
        assert exposure.listen_port is not None
        self.sock = socket.socket(type=socket.SOCK_DGRAM)
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.sock.bind((source, 0))
        self.sock.connect((host, exposure.listen_port))

    async def receive(self) -> bytes:
        loop = asyncio.get_running_loop()
        return await asyncio.wait_for(loop.sock_recv(self.sock, 65536), SECONDS)

    async def ask(self, payload: bytes) -> bytes:
        self.sock.send(payload)
        return await self.receive()


@pytest.fixture
async def server(stack) -> AsyncIterator[int]:
    """A UDP server that returns what it gets, to `who` its client's port, and to `much` 20 answers of 400 bytes."""
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.bind(("127.0.0.1", 0))

        def answer() -> None:
            data, client = sock.recvfrom(65536)
            for _ in range(20 if data == b"much" else 1):
                answer = {b"who": b"%d" % client[1], b"much": bytes(400)}.get(data, data)
                sock.sendto(answer, client)

        asyncio.get_running_loop().add_reader(sock, answer)
        yield sock.getsockname()[1]
        asyncio.get_running_loop().remove_reader(sock)


@pytest.fixture
async def udp(gateway, upstream, server) -> Callable[..., Awaitable[Started]]:
    """`await udp()`: a gateway, its UDP exposure, and the sidecar behind it."""

    async def start() -> Started:
        side = UdpSidecar(server)
        address = (await upstream(side)).address
        gw = await gateway(listen_host="0.0.0.0")
        gw.route(address)
        return gw, await gw.exposures.add("sb-1", "acme", 53, "dns", "udp"), side

    return start


@pytest.fixture
def client(stack) -> Callable[..., Client]:
    """`client(exposure)`: another client, whose socket the test's end closes."""

    def make(exposure: Exposure, **addresses: str) -> Client:
        made = Client(exposure, **addresses)
        stack.callback(made.sock.close)
        return made

    return make


async def answers(client: Client) -> bool:
    """Return whether an answer came at once: ask until it does."""
    try:
        async with asyncio.timeout(0.2):
            return await client.ask(b"again") == b"again"
    except (TimeoutError, ConnectionRefusedError):
        return False


def counted(gw: Gateway, name: str, **labels: str) -> float:
    return gw.metrics.registry.get_sample_value(name, labels) or 0.0
