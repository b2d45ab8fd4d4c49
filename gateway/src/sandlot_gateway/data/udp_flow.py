"""Carries the datagrams of one client of a UDP exposure between its socket and its connection into the sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable

from sandlot_contract.datagrams import MAX_DATAGRAM, DatagramReader, frame

from ..metrics import DropReason
from . import udp_limits
from .conn import Connection
from .errors import PoolError
from .udp_bytes import ByteBudget
from .udp_limits import Observer
from .udp_reader import UdpReader
from .udp_sockets import MAX_READ, Address
from .udp_turns import BATCH, BATCH_BYTES, Turns

_EARLY = 16  # datagrams that wait for the connection, besides those in the socket's buffer
IDLE_CHECK = 10.0  # seconds
_RETRY = 1.0  # seconds until a client may try again to reach the sandbox
_buffer = bytearray(MAX_READ)  # for all flows, which never wait while they use it
_view = memoryview(_buffer)


class UdpFlow:
    """One client; `tunnel` opens the connection, or returns None.

    `astray` receives datagrams of other clients, which the kernel gave to this socket before it was connected.
    """

    def __init__(
        self,
        *,
        client: Address,
        sock: socket.socket,
        tunnel: Callable[[], Awaitable[Connection | None]],
        astray: Callable[[bytes, Address], None],
        turns: Turns,
        exposure: int,
        budget: ByteBudget,
        observer: Observer,
    ) -> None:
        self._client = client
        self._sock = sock
        self._tunnel = tunnel
        self._astray = astray
        self._turns = turns
        self._exposure = exposure
        self._budget = budget
        self._observer = observer
        self._reader = UdpReader(sock, self._take_turn, turns=turns, by=exposure, observer=observer)
        self._loop = asyncio.get_running_loop()
        self._early: list[bytes] = []
        self._frames = DatagramReader()
        self._connection: Connection | None = None
        self._drained: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self.began_at = self.heard_at = time.monotonic()
        self.datagrams = 0
        self._may_send = udp_limits.FIRST_ANSWERS  # bytes; more with each datagram of the client
        self._refused = False  # nothing listens at the client's address, as far as we know
        self._closed = False

    async def run(self) -> None:
        """Carry datagrams until the client is idle or the connection ends; the caller may cancel it."""
        try:
            self._connection = connection = await self._connected()
            if connection is None:
                # Else the sidecar would be asked again for each datagram of a client that it rejects.
                await asyncio.sleep(_RETRY)
                return
            connection.transport.set_write_buffer_limits(high=udp_limits.HIGH)
            connection.read_high = udp_limits.HIGH
            with contextlib.suppress(OSError):  # closed meanwhile
                for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                    connection.sock.setsockopt(socket.SOL_SOCKET, option, udp_limits.KERNEL_HIGH // 2)
            early, self._early = self._early, []
            self.datagrams -= len(early)
            for data in early:
                self.up(data)
            self._reader.start()
            self._check_idle()
            await self._down(connection)
        finally:
            self._close()

    @property
    def held(self) -> int:
        """The bytes that wait in this flow."""
        connection = 0 if self._connection is None else self._connection.held
        return connection + self._frames.held + sum(map(len, self._early))

    def up(self, data: bytes) -> None:
        """Send a datagram of the client that arrived elsewhere, such as its first one."""
        self.datagrams += 1
        if len(data) > MAX_DATAGRAM:
            self._observer.datagrams_dropped("too_long", 1)
        elif self._closed or (self._connection is None and not self._is_room_early()):
            self._observer.datagrams_dropped("no_connection", 1)
        elif self._connection is not None and self._connection.congested:
            self._observer.datagrams_dropped("sandbox_slow", 1)
        elif not self._budget.take(self, len(data)):
            self._observer.datagrams_dropped("too_many_bytes", 1)
        elif self._connection is None:
            self._early.append(data)
        else:
            self.heard_at = time.monotonic()
            self._heard(len(data))
            self._connection.write(frame(data))
            self._observer.datagrams_carried("to_sandbox", 1)

    def _heard(self, size: int) -> None:
        self._refused = False
        self._may_send += udp_limits.ANSWERS * (size + udp_limits.HEADERS)

    def _is_room_early(self) -> bool:
        return len(self._early) < _EARLY and sum(map(len, self._early)) < udp_limits.HIGH

    async def _connected(self) -> Connection | None:
        try:
            return await self._tunnel()
        except PoolError:
            return None

    # -- from the client -------------------------------------------------------------------------------------

    def _take_turn(self) -> None:
        connection = self._connection
        if self._closed or connection is None:
            return
        if connection.congested:
            self._reader.stop()
            if self._drained is None:
                self._drained = self._loop.create_task(self._read_when_drained(connection))
            return
        begin = time.monotonic()
        carried = self._up_batch(connection)
        if carried:
            self.heard_at = begin
            self.datagrams += carried
            self._observer.datagrams_carried("to_sandbox", carried)
        self._turns.spent(time.monotonic() - begin)
        self._reader.start()

    async def _read_when_drained(self, connection: Connection) -> None:
        await connection.drain()
        self._drained = None
        if not connection.lost:
            self._reader.start()

    def _up_batch(self, connection: Connection) -> int:
        carried = size = 0
        for _ in range(BATCH):
            if connection.congested:
                break
            try:
                length, sender = self._sock.recvfrom_into(_buffer)
            except ConnectionRefusedError:
                self._refused = True
                continue
            except OSError:
                break
            size += length
            if sender != self._client:
                self._astray(bytes(_view[:length]), sender)
            elif length > MAX_DATAGRAM:  # over IPv6, which allows 20 bytes more
                self._observer.datagrams_dropped("too_long", 1)
            elif self._budget.take(self, length):
                self._heard(length)
                connection.write(frame(_view[:length]))
                carried += 1
            else:
                self._observer.datagrams_dropped("too_many_bytes", 1)
            if size > BATCH_BYTES:
                break
        return carried

    # -- from the sandbox ------------------------------------------------------------------------------------

    async def _down(self, connection: Connection) -> None:
        with contextlib.suppress(PoolError, ValueError):
            while data := await connection.read():
                has_room = self._budget.take(self, len(data))
                self._frames.feed(data)
                del data  # else it would stay, besides its copy, while this flow waits for a turn
                if not has_room:
                    self._skip()
                while self._down_batch():
                    await asyncio.sleep(0)
                    await self._turns.turn(by=self._exposure)
                await self._turns.turn(by=self._exposure)

    def _skip(self) -> None:
        begin = time.monotonic()
        if skipped := self._frames.skip():
            self._observer.datagrams_dropped("too_many_bytes", skipped)
        self._turns.spent(time.monotonic() - begin)

    def _down_batch(self) -> bool:
        """Send some of the datagrams that have arrived; return whether more may be there. Raises ValueError."""
        begin = time.monotonic()
        more, carried, size = True, 0, 0
        dropped: Counter[DropReason] = Counter()
        for _ in range(BATCH):
            payload = self._frames.read()
            if payload is None:
                more = False
                break
            reason = self._answer(payload)
            if reason is None:
                carried += 1
            else:
                dropped[reason] += 1
            size += len(payload)
            if size > BATCH_BYTES:
                break
        self._turns.spent(time.monotonic() - begin)
        if carried:
            self._observer.datagrams_carried("to_client", carried)
        for reason, datagrams in dropped.items():
            self._observer.datagrams_dropped(reason, datagrams)
        return more

    def _answer(self, payload: bytes) -> DropReason | None:
        """Send an answer; return why it was dropped, if it was. The client's address may be forged: see `_heard`."""
        if self._refused:
            return "refused"
        size = len(payload) + udp_limits.HEADERS
        if size > self._may_send:
            return "unasked"
        try:
            self._sock.send(payload)
        except ConnectionRefusedError:  # of an earlier answer
            self._refused = True
            return "refused"
        except OSError:
            return "client_slow"
        self._may_send -= size
        return None

    # -- end -------------------------------------------------------------------------------------------------

    def _check_idle(self) -> None:
        self._reader.count_rejected()
        left = self.heard_at + udp_limits.IDLE - time.monotonic()
        if left > 0:
            self._idle = self._loop.call_later(min(left, IDLE_CHECK), self._check_idle)
        elif self._connection is not None:
            self._connection.close()  # `run` ends

    def _close(self) -> None:
        self._closed = True
        self._reader.stop()
        for waiting in (self._drained, self._idle):
            if waiting is not None:
                waiting.cancel()
        if self._connection is not None:
            self._connection.close()
        if self._early:
            self._observer.datagrams_dropped("no_connection", len(self._early))
        self._reader.close()
