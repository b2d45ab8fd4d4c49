"""Reads one UDP socket of an exposure in its turns, and counts what the socket loses."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Hashable

from sandlot_contract.datagram_drops import rejected

from .udp_limits import Observer
from .udp_sockets import unread
from .udp_turns import Turns


class UdpReader:
    """Calls `take_turn`, which goes on by `start`, when the socket has datagrams and its turn has come.

    `by`: as for `Turns`.
    """

    def __init__(
        self,
        sock: socket.socket,
        take_turn: Callable[[], None],
        *,
        turns: Turns,
        by: Hashable,
        observer: Observer,
    ) -> None:
        self._sock = sock
        self._take_turn = take_turn
        self._turns = turns
        self._by = by
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        self._reads = False
        self._rejected = 0

    def start(self) -> None:
        """Read from now on, if it does not yet."""
        if not self._reads:
            self._reads = True
            self._loop.add_reader(self._sock.fileno(), self._readable)

    def stop(self) -> None:
        """Leave what arrives in the socket's buffer; the kernel drops and counts what is too much."""
        if self._reads:
            self._reads = False
            self._loop.remove_reader(self._sock.fileno())

    def count_rejected(self) -> None:
        """Count what found the socket's buffer full since the last call."""
        before, self._rejected = self._rejected, rejected(self._sock)
        if lost := self._rejected - before:
            self._observer.datagrams_dropped("sandbox_slow", lost)

    def close(self) -> None:
        """Close the socket, and count what it still held."""
        self.stop()
        if self._sock.fileno() < 0:
            return
        self.count_rejected()
        if lost := unread(self._sock):
            self._observer.datagrams_dropped("no_connection", lost)
        self._sock.close()

    def _readable(self) -> None:
        if self._turns.must_wait():
            self.stop()
            self._turns.wait(self._take_turn, by=self._by)
        else:
            self._take_turn()
