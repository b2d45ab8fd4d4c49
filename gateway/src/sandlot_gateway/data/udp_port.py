"""One UDP port of the gateway's host: tells its clients apart and gives each a flow of its own."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Awaitable, Callable
from functools import partial

from ..tasks import Tasks
from .conn import Connection
from .open_files import OpenFiles, Room
from .udp_bytes import ByteBudget
from .udp_flow import UdpFlow
from .udp_limits import NotCounted, Observer
from .udp_places import Places
from .udp_reader import UdpReader
from .udp_sockets import Address, connected, listening, receive
from .udp_turns import BATCH, BATCH_BYTES, Turns

log = logging.getLogger("sandlot.expose")


class UdpPorts:
    """What the UDP ports of one gateway share."""

    def __init__(self, observer: Observer | None) -> None:
        self.observer = observer or NotCounted()
        self.turns = Turns()
        self._files = OpenFiles()
        self.ports: set[int] = set()
        self.places: Places[UdpFlow] = Places()
        self.budget = ByteBudget(self.places.clients)

    def has_files(self, sock: socket.socket) -> bool:
        return self._files.room_after(sock.fileno()) is Room.ENOUGH


class UdpPort:
    """A port; `tunnel` opens a connection into the sandbox for each client, or returns None."""

    def __init__(
        self, ports: UdpPorts, tunnel: Callable[[], Awaitable[Connection | None]], tenant: str
    ) -> None:
        self._all = ports
        self._tenant = tenant
        self._tunnel = tunnel
        self._sock: socket.socket | None = None
        self._port = 0
        self._reader: UdpReader | None = None
        self._flows: dict[tuple[Address, str], UdpFlow] = {}
        self._tasks = Tasks()

    async def open(self, host: str, port: int) -> int:
        """Receive from now on; return the bound port. Raises OSError."""
        self._sock = listening(host, port)
        self._port = self._sock.getsockname()[1]
        self._all.ports.add(self._port)
        self._reader = UdpReader(
            self._sock,
            self._take_turn,
            turns=self._all.turns,
            by=self._port,
            observer=self._all.observer,
        )
        self._reader.start()
        return self._port

    async def close(self) -> None:
        """Stop receiving and end every flow."""
        reader, self._reader, self._sock = self._reader, None, None
        if reader is not None:
            self._all.ports.discard(self._port)
            reader.close()
        await self._tasks.close()

    def _take_turn(self) -> None:
        if self._sock is None or self._reader is None:
            return
        begin, size = time.monotonic(), 0
        for _ in range(BATCH):
            try:
                data, client, local = receive(self._sock)
            except OSError:
                break
            self._received(local, data, client)
            size += len(data)
            if size > BATCH_BYTES:
                break
        self._reader.count_rejected()
        self._all.turns.spent(time.monotonic() - begin)
        self._reader.start()

    def _received(self, local: str, data: bytes, client: Address) -> None:
        flow = self._flows.get((client, local)) or self._new_flow(client, local)
        if flow is not None:
            flow.up(data)

    def _new_flow(self, client: Address, local: str) -> UdpFlow | None:
        if self._sock is None:
            return None
        if client[1] < 1024 or (client[0] == local and client[1] in self._all.ports):
            # A server's address, most likely forged: it and the app might answer each other for ever.
            self._all.observer.datagrams_dropped("refused", 1)
            return None
        place = (self._tenant, self._port)
        if not self._all.places.has_room(place):
            self._all.observer.datagrams_dropped("too_many_flows", 1)
            return None
        try:
            sock = connected(self._sock, local=local, client=client)
        except OSError as error:
            log.debug("no socket for a client of port %s: %s; its datagram is dropped", self._port, error)
            self._all.observer.datagrams_dropped("no_connection", 1)
            return None
        if not self._all.has_files(sock):
            sock.close()
            self._all.observer.datagrams_dropped("too_many_flows", 1)
            return None
        flow = UdpFlow(
            client=client,
            sock=sock,
            tunnel=self._tunnel,
            astray=partial(self._received, local),
            turns=self._all.turns,
            exposure=self._port,
            budget=self._all.budget,
            observer=self._all.observer,
        )
        self._flows[client, local] = flow
        task = self._tasks.spawn(flow.run())

        def ended() -> None:
            if self._flows.get((client, local)) is flow:
                del self._flows[client, local]
            self._all.places.give_back(place, flow)
            self._all.observer.udp_flows(self._all.places.taken)

        def evict() -> None:
            task.cancel()
            ended()

        def done(_: object) -> None:
            sock.close()  # a flow that was cancelled before it began has not
            ended()

        self._all.places.take(place, flow, evict=evict)
        self._all.observer.udp_flows(self._all.places.taken)
        task.add_done_callback(done)
        return flow
