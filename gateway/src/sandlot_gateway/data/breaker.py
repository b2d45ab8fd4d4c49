"""Limits requests in flight per sandbox and in total: a full queue rejects at once instead of growing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from .admission import Admission, Full


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the data plane; times in seconds."""

    per_sandbox: int = 256  # requests in flight to one sandbox
    queue_per_sandbox: int = 1024  # requests waiting for one sandbox
    # Requests in flight and waiting, over all sandboxes; a tenth is reserved for each tenant.
    total: int = 20_000
    pending_wait: float = 5.0  # how long a request waits for a sandbox that is still starting
    retry_after: int = 1  # sent with each 503
    sockets: int = 2000  # open WebSockets: terminals and exposed ones; no tenant has more than nine tenths
    sockets_per_sandbox: int = 256
    access_log: float = 0.0  # share of requests that get a line in the access log, 0 to 1


class Overloaded(Exception):
    """Raised when a queue is full; `full` says which."""

    def __init__(self, full: Full) -> None:
        super().__init__(f"full: {full}")
        self.full = full


class Abandoned(Exception):
    """Raised when the client left while its request waited."""


class Breaker:
    """Admission with waiting; after each successful `enter`, call `leave` exactly once.

    A request that is cancelled while it waits releases its permit, even if it was admitted at that moment.
    """

    def __init__(self, limits: Limits) -> None:
        self._admission = Admission(
            max_running=limits.per_sandbox, max_waiting=limits.queue_per_sandbox, max_total=limits.total
        )

    @property
    def running(self) -> int:
        return self._admission.running

    @property
    def waiting(self) -> int:
        return self._admission.waiting

    def try_enter(self, lane: str, *, tenant: str = "") -> bool:
        """Return whether the request was admitted without waiting; if not, await `enter`. Raises Overloaded."""
        outcome = self._admission.enter(lane, None, tenant=tenant)
        if isinstance(outcome, Full):
            raise Overloaded(outcome)
        return outcome

    async def enter(
        self,
        lane: str,
        *,
        tenant: str = "",
        gone: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> float:
        """Wait for a permit, first come first served; return the seconds waited.

        `gone` returns when the client has left. Raises Overloaded, or Abandoned after `gone`.
        """
        loop = asyncio.get_running_loop()
        ticket: asyncio.Future[bool] = loop.create_future()
        outcome = self._admission.enter(lane, ticket, tenant=tenant)
        if isinstance(outcome, Full):
            raise Overloaded(outcome)
        if outcome:
            return 0.0
        since = loop.time()
        leaving = None if gone is None else loop.create_task(gone())
        if leaving is not None:
            leaving.add_done_callback(lambda _: ticket.done() or ticket.set_result(False))
        try:
            try:
                admitted = await ticket
            finally:
                if leaving is not None:
                    leaving.cancel()
                    await asyncio.wait([leaving])
            if not admitted:
                raise Abandoned
        except BaseException:
            # It may have been admitted at this moment; its permit would be lost with it.
            if not self._admission.cancel(lane, ticket):
                self.leave(lane)
            raise
        return loop.time() - since

    def full(self, lane: str) -> Full:
        """Return the rejection of a request that does not wait."""
        running, waiting = self._admission.position(lane)
        return Full("sandbox", running, waiting, self._admission.max_running)

    def leave(self, lane: str) -> None:
        ticket = self._admission.leave(lane)
        # A ticket that is done was abandoned a moment ago: its `enter` has yet to wake, finds that it no longer
        # waits, and leaves again, so that the permit passes to the next one.
        if isinstance(ticket, asyncio.Future) and not ticket.done():
            ticket.set_result(True)
