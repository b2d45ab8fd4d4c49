"""Queues calls by upstream until a dial or a released connection serves them, or none can come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ..metrics import DialResult
from .conn import Connection
from .connection_queue import ConnectionQueue, ConnectionQueueSettings
from .dial import DialSettings, Encryption, dial
from .errors import DialError

Dial = Callable[[], Awaitable[Connection]]
_Ticket = asyncio.Future[Connection]


class ConnectionQueues:
    """The queues of all upstreams; `free` gets each dialled connection, and calls `serve` or keeps it."""

    def __init__(
        self,
        *,
        settings: ConnectionQueueSettings,
        dialling: DialSettings,
        free: Callable[[Connection], None],
        dialled: Callable[[DialResult], None],
        tls: Encryption | None = None,
    ) -> None:
        self._settings = settings
        self._dialling = dialling
        self._free = free
        self._dialled = dialled
        self._tls = tls
        self._lines: dict[str, ConnectionQueue[_Ticket]] = {}
        self._dials: dict[asyncio.Task[None], str] = {}
        self._heard: dict[str, float] = {}

    def heard(self, key: str) -> None:
        """Record a sign of life of an upstream: an answer, a connection, a heartbeat."""
        self._heard[key] = asyncio.get_running_loop().time()

    def forget_old(self) -> bool:
        """Forget expired signs of life; return whether any remain."""
        since = asyncio.get_running_loop().time() - self._settings.silent_for
        self._heard = {key: at for key, at in self._heard.items() if at > since}
        return bool(self._heard)

    def refused_for(self, *, known_alive: bool) -> float:
        """Return for how many seconds refused connections do not yet prove that the upstream is dead."""
        return self._settings.refused_for if known_alive else self._settings.refused_for_others

    async def wait(
        self, key: str, dial_with: Dial | None, *, known_alive: bool, starting: bool = False
    ) -> Connection:
        """Return a connection that is dialled or released meanwhile. Raises DialError."""
        loop = asyncio.get_running_loop()
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = ConnectionQueue(self._settings)
        ticket: _Ticket = loop.create_future()
        waiter = line.join(ticket, now=loop.time(), known_alive=known_alive, starting=starting)
        for _ in range(line.begin_dials()):
            task = loop.create_task(self._dial(key, line, dial_with))
            self._dials[task] = key
            task.add_done_callback(self._dials.pop)
        try:
            # Shielded: the queue must not hold a cancelled ticket.
            return await asyncio.shield(ticket)
        except asyncio.CancelledError:
            line.leave(waiter)
            if not ticket.done():
                ticket.cancel()
            elif not ticket.cancelled() and ticket.exception() is None:
                self._free(ticket.result())
            raise

    def serve(self, connection: Connection) -> bool:
        """Hand a free connection to the first call in its queue; return False if none waits."""
        line = self._lines.get(connection.address)
        ticket = line.serve() if line is not None else None
        if ticket is None:
            return False
        ticket.set_result(connection)
        return True

    def dismiss(self, key: str, reason: str) -> None:
        """Fail all calls that wait for an upstream that is gone; another may get its address."""
        self._heard.pop(key, None)
        line = self._lines.pop(key, None)
        if line is None:
            return
        for task in [task for task, dialled in self._dials.items() if dialled == key]:
            task.cancel()
        for ticket in line.dismiss_all():
            ticket.set_exception(DialError(key, reason, peer="ended"))

    def none_within(self, key: str, seconds: float) -> DialError:
        """Return the error for a call whose timeout expired, with whether the upstream is slow or silent."""
        return self._unanswered(key, f"no connection within {seconds:g} s; ")

    def _unanswered(self, key: str, prefix: str = "") -> DialError:
        line = self._lines.get(key)
        reason = f" ({line.reason})" if line is not None and line.reason else ""
        heard = self._heard.get(key)
        if heard is None:
            return DialError(key, f"{prefix}it is silent, no sign of life so far{reason}", peer="silent")
        ago = asyncio.get_running_loop().time() - heard
        if ago >= self._settings.silent_for:
            return DialError(key, f"{prefix}it has been silent for {ago:.0f} s{reason}", peer="silent")
        return DialError(
            key,
            f"{prefix}it is slow, not dead: last sign of life {ago:.1f} s ago{reason}",
            peer="slow",
        )

    async def close(self) -> None:
        """Cancel the dials and fail all waiting calls."""
        dials = list(self._dials)
        # Before the dials end: the last one removes its queue, and the calls in it would wait for ever.
        for key in list(self._lines):
            self.dismiss(key, "the pool is closed")
        await asyncio.gather(*dials, return_exceptions=True)

    async def _dial(self, key: str, line: ConnectionQueue[_Ticket], dial_with: Dial | None) -> None:
        failures = 0
        try:
            while line.is_dial_needed():
                starting = line.is_starting()  # before: those who wait may leave meanwhile
                try:
                    connection = await self._attempt(key, line, dial_with)
                except DialError as error:
                    failures += 1
                    self._failed(key, line, error, starting=starting)
                    if line.is_dial_needed():
                        await asyncio.sleep(self._dialling.pause_after(failures))
                    continue
                failures = 0
                line.connected()
                self.heard(key)
                self._dialled("ok")
                self._free(connection)
        finally:
            line.dials -= 1
            if not line.dials and self._lines.get(key) is line:
                del self._lines[key]

    async def _attempt(self, key: str, line: ConnectionQueue[_Ticket], dial_with: Dial | None) -> Connection:
        try:
            if dial_with is not None:
                connection = await dial_with()
            else:
                connection = await dial(key, timeout=self._dialling.timeout_of(line.timeouts), tls=self._tls)
        except DialError:
            raise
        except Exception as error:  # else the queued calls would wait for ever
            raise DialError(key, f"{type(error).__name__}: {error}", final=True) from error
        if connection.lost:
            connection.close()
            raise DialError(key, "the peer closed the connection before it was used", refused=True)
        connection.address = key
        return connection

    def _failed(self, key: str, line: ConnectionQueue[_Ticket], error: DialError, *, starting: bool) -> None:
        self._dialled("refused" if starting and error.nothing_listens else "failed")
        now = asyncio.get_running_loop().time()
        heard = self._heard.get(key)
        told = line.failed(now=now, refused=error.refused, reason=error.reason, heard=heard)
        if error.final:
            told += line.dismiss_all()
        for ticket in told:
            known = error.final or error.refused
            ticket.set_exception(error if known else self._unanswered(key))
