"""The gateway's HTTP/1.1 client: a pool of keep-alive connections to thousands of upstreams."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from ..metrics import DialResult
from .answer import Answer
from .conn import Connection
from .connection_queue import ConnectionQueueSettings
from .connection_queues import ConnectionQueues, Dial
from .dial import DialSettings, Encryption
from .errors import DialError, PoolError, UpstreamError
from .idle import IdleConnections
from .open_files import OpenFiles, Room
from .outgoing import host_header, request_bytes

__all__ = [
    "Answer",
    "Dial",
    "DialError",
    "HttpPool",
    "PoolError",
    "PoolObserver",
    "PoolSettings",
    "UpstreamError",
]

PRIME_TIMEOUT = 10.0  # seconds
_SPARED = 256  # upstreams whose idle connections are closed at once, so that the event loop goes on


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """Limits of the pool; times in seconds."""

    idle_timeout: float = 60.0  # an unused connection is closed after this, at most a quarter later
    max_idle_per_host: int = 256  # as many as calls may run in a sandbox, since all may call again
    max_idle: int = 20_000
    max_files: int | None = None  # of the process; None: its own soft limit
    max_fetch: int = 64 << 20  # bytes of a response to `fetch`
    dial: DialSettings = field(default_factory=DialSettings)
    line: ConnectionQueueSettings = field(default_factory=ConnectionQueueSettings)


class PoolObserver(Protocol):
    """Counts dials; see metrics.py."""

    def dialled(self, result: DialResult) -> None: ...


class HttpPool:
    """Connections by key (an address, or a tunnel through one), last used first.

    A call that finds no idle connection queues for its key (lines.py) until one is dialled or released. A connection
    is reused only if its response was complete, the peer keeps it alive, and the kernel holds no bytes or end of
    file for it. A failed dial is retried; nothing after it ever is.
    """

    def __init__(
        self,
        *,
        settings: PoolSettings | None = None,
        observer: PoolObserver | None = None,
        tls: Encryption | None = None,
    ) -> None:
        """`tls`: for addresses that begin with `tls:`."""
        self._settings = settings or PoolSettings()
        self._observer = observer
        self._files = OpenFiles(self._settings.max_files)
        self._idle = IdleConnections(
            timeout=self._settings.idle_timeout,
            max_per_key=self._settings.max_idle_per_host,
            max_all=self._settings.max_idle,
        )
        self._busy: set[Connection] = set()
        self._lines = ConnectionQueues(
            settings=self._settings.line,
            dialling=self._settings.dial,
            free=self._offer,
            dialled=self._dialled,
            tls=tls,
        )
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def idle_connections(self) -> int:
        return len(self._idle)

    @property
    def busy_connections(self) -> int:
        return len(self._busy)

    async def fetch(
        self,
        address: str,
        method: str,
        target: str,
        *,
        headers: Iterable[tuple[str | bytes, str | bytes]] = (),
        body: bytes = b"",
        timeout: float = 30.0,
        known_alive: bool = False,
        starting: bool = False,
        most: int | None = None,
    ) -> Answer:
        """Send a small request and return its whole response within `timeout` seconds.

        `known_alive`, `starting`: as in `acquire`. `most`: bytes of the response's body, if fewer than the pool's settings allow.

        Raises DialError (nothing was sent, a retry is safe), UpstreamError (it may have run) or ValueError (an invalid
        method, target or header).
        """
        request = request_bytes(method, target, host=host_header(address), headers=headers, body=body)
        connection: Connection | None = None
        limit = self._settings.max_fetch if most is None else most
        try:
            async with asyncio.timeout(timeout):
                connection = await self.acquire(address, known_alive=known_alive, starting=starting)
                connection.begin(request, no_body=method == "HEAD")
                response = await connection.head()
                pieces: list[bytes] = []
                size = 0
                while piece := await connection.read():
                    pieces.append(piece)
                    size += len(piece)
                    if size > limit:
                        raise UpstreamError(f"the response of {address} is larger than {limit} bytes")
                return Answer(response.status, response.headers, b"".join(pieces))
        except TimeoutError as error:
            if connection is None:
                raise self._lines.none_within(address, timeout) from error
            raise UpstreamError(
                f"no response from {address} to {method} {target} within {timeout:g} s"
            ) from error
        finally:
            if connection is not None:
                self.release(connection)

    def take(self, key: str) -> Connection | None:
        """Take an idle connection for one request; return None if there is none."""
        while (connection := self._idle.take(key)) is not None:
            if not connection.lost and connection.is_quiet():
                self._busy.add(connection)
                return connection
            connection.close()
        return None

    async def acquire(
        self,
        key: str,
        dial_with: Dial | None = None,
        *,
        known_alive: bool = False,
        starting: bool = False,
        timeout: float | None = None,
    ) -> Connection:
        """Return a connection for one request: an idle one, else a new one from `dial_with` (default: dial the key).

        `known_alive`: the backend says that the upstream is alive, so wait for as long as it is slow. `starting`:
        it may not listen yet, so that a refused attempt counts as `refused` and not as `failed`. The caller must `release` the connection, whatever happens. Raises DialError.
        """
        if self._closed:
            raise DialError(key, "the pool is closed")
        connection = self.take(key)
        if connection is not None:
            return connection
        try:
            async with asyncio.timeout(timeout):
                return await self._wait(key, dial_with, known_alive=known_alive, starting=starting)
        except TimeoutError as error:
            raise self._lines.none_within(key, timeout or 0.0) from error

    async def _wait(
        self, key: str, dial_with: Dial | None, *, known_alive: bool, starting: bool
    ) -> Connection:
        """Wait in the key's queue; again if the peer closed the connection before it was used."""
        loop = asyncio.get_running_loop()
        closed_since: float | None = None
        closed = 0
        while True:
            connection = await self._lines.wait(key, dial_with, known_alive=known_alive, starting=starting)
            self.has_room(connection.sock.fileno())
            if not connection.lost and connection.is_quiet():
                return connection
            self._busy.discard(connection)
            connection.close()
            if connection.uses:
                continue
            # A peer that closes every connection at once would be dialled for ever, without a pause.
            closed += 1
            closed_since = closed_since or loop.time()
            if loop.time() - closed_since >= self._lines.refused_for(known_alive=known_alive):
                raise DialError(key, "the peer closed the connection before it was used", refused=True)
            await asyncio.sleep(self._settings.dial.pause_after(closed))

    def has_room(self, number: int) -> bool:
        """Return whether the process may open more than the file with this number; near its limit, give up idle ones.

        Without them it would close connections of its callers, unanswered, and keep those that nobody uses.
        """
        room = self._files.room_after(number)
        if room is not Room.ENOUGH:
            self._idle.close_some(_SPARED)
        return room is not Room.NONE

    def detach(self, connection: Connection) -> None:
        """Hand a connection that no longer carries HTTP over to its user, who closes it."""
        self._busy.discard(connection)

    def heard(self, key: str) -> None:
        """Record a sign of life of an upstream that did not come over its connections."""
        self._lines.heard(key)
        self._sweep_later()

    def give_up(self, key: str, reason: str) -> None:
        """Fail all calls that wait for a connection to a dead upstream."""
        self._lines.dismiss(key, reason)

    def _dialled(self, result: DialResult) -> None:
        if self._observer is not None:
            self._observer.dialled(result)

    def _offer(self, connection: Connection) -> None:
        """Hand a free connection to the first call in its queue, or keep it idle."""
        if self._closed:
            connection.close()
        elif self._lines.serve(connection):
            self._busy.add(connection)
        else:
            self._busy.discard(connection)
            self._idle.keep(connection)
            self._sweep_later()

    def release(self, connection: Connection, *, reusable: bool = True) -> None:
        """Return a connection to the pool; one whose response was not read to its end is closed."""
        self._busy.discard(connection)
        if not reusable or self._closed or not connection.reusable:
            connection.close()
            return
        self._lines.heard(connection.address)
        self._offer(connection)

    async def prime(self, key: str) -> None:
        """Open a connection for the first request, kept until it is used. Raises DialError."""
        if key not in self._idle:
            connection = await self.acquire(key, timeout=PRIME_TIMEOUT)
            self._busy.discard(connection)
            self._idle.keep(connection, until=math.inf)
            self._sweep_later()

    def forget(self, key: str) -> None:
        """Close the idle connections of an upstream that is gone, and fail the calls that wait for one."""
        self.give_up(key, "it has ended")
        self._idle.close(key)

    def cut(self, key: str) -> None:
        """Close all connections of a key whose machine is gone, since no FIN or RST will come."""
        self.forget(key)
        for connection in [one for one in self._busy if one.address == key]:
            connection.close()

    async def close(self) -> None:
        """Close every connection; calls in flight get UpstreamError."""
        self._closed = True
        await self._lines.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        self._idle.close_all()
        for connection in list(self._busy):
            connection.close()
        # The loop closes the descriptors in its next iterations; a caller that counts them must not see them.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def _sweep(self) -> None:
        self._idle.sweep()
        self._sweeper = None
        if self._lines.forget_old() or len(self._idle):
            self._sweep_later()

    def _sweep_later(self) -> None:
        if self._sweeper is None and not self._closed:
            loop = asyncio.get_running_loop()
            self._sweeper = loop.call_later(self._settings.idle_timeout / 4, self._sweep)
