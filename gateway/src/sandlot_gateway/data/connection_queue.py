"""Decides, without I/O, which calls wait for a connection to an upstream, how many dials run, and when it is dead."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

Ticket = TypeVar("Ticket")


@dataclass(frozen=True, slots=True)
class ConnectionQueueSettings:
    """Limits of a queue; times in seconds."""

    max_dials: int = 4  # at once, however many calls wait; connections still grow to as many as calls need
    # A refused connection proves that no sidecar listens. The backend of a sandbox believed alive has this long to
    # report its end, which gives a verdict; for any other upstream a few attempts are enough.
    refused_for: float = 5.0
    refused_for_others: float = 0.05
    # An upstream without any sign of life (a connection, an answer, a heartbeat) for this long is dead, whatever the
    # backend says. Longer than the backend takes to report a lost node (docs/failures.md).
    silent_for: float = 120.0
    silent_for_others: float = 4.0  # a claim then goes to the next instance


@dataclass(slots=True, eq=False)
class Waiter(Generic[Ticket]):
    """A waiting call.

    `known_alive`: the backend has not reported the upstream's end. `starting`: it polls a sidecar that may not listen
    yet, so that a refusal is no failure.
    """

    ticket: Ticket
    since: float
    known_alive: bool
    starting: bool = False


class ConnectionQueue(Generic[Ticket]):
    """A first-in, first-out queue of calls, served by any new or released connection to the upstream.

    The owner starts `begin_dials()` dials after each `join`, and ends a dial when `is_dial_needed()` is False.
    """

    def __init__(self, settings: ConnectionQueueSettings) -> None:
        self._settings = settings
        self._waiting: deque[Waiter[Ticket]] = deque()
        self._refused_since: float | None = None
        self.dials = 0
        self.timeouts = 0  # unanswered attempts in a row
        self.reason = ""  # of the last failed attempt

    def __len__(self) -> int:
        return len(self._waiting)

    def join(
        self, ticket: Ticket, *, now: float, known_alive: bool, starting: bool = False
    ) -> Waiter[Ticket]:
        waiter = Waiter(ticket, now, known_alive, starting)
        self._waiting.append(waiter)
        return waiter

    def leave(self, waiter: Waiter[Ticket]) -> None:
        """Remove a waiter; do nothing if it was served or failed before."""
        if waiter in self._waiting:
            self._waiting.remove(waiter)

    def serve(self) -> Ticket | None:
        """Remove and return the first ticket, which gets a free connection; None if the queue is empty."""
        return self._waiting.popleft().ticket if self._waiting else None

    def begin_dials(self) -> int:
        """Return how many dials to start now, and count them as running."""
        wanted = max(0, min(len(self._waiting), self._settings.max_dials) - self.dials)
        self.dials += wanted
        return wanted

    def is_dial_needed(self) -> bool:
        """Return whether a failed dial should try again for a waiting call."""
        return self.dials <= len(self._waiting)

    def is_starting(self) -> bool:
        """Return whether all calls that wait poll a sidecar that may not listen yet."""
        return all(waiter.starting for waiter in self._waiting)

    def connected(self) -> None:
        """Record a successful attempt."""
        self.timeouts = 0
        self._refused_since = None

    def failed(self, *, now: float, refused: bool, reason: str, heard: float | None) -> list[Ticket]:
        """Record a failed attempt; remove and return the tickets for which the upstream is now dead.

        `heard`: when the upstream last gave a sign of life.
        """
        self.reason = reason
        if refused:
            self.timeouts = 0
            if self._refused_since is None:
                self._refused_since = now
        else:
            self.timeouts += 1
            self._refused_since = None
        return self._dismiss([one for one in self._waiting if self._is_over(one, now=now, heard=heard)])

    def dismiss_all(self) -> list[Ticket]:
        """Remove and return all tickets."""
        return self._dismiss(list(self._waiting))

    def _is_over(self, waiter: Waiter[Ticket], *, now: float, heard: float | None) -> bool:
        settings = self._settings
        if self._refused_since is not None:
            limit = settings.refused_for if waiter.known_alive else settings.refused_for_others
            return now - self._refused_since >= limit
        limit = settings.silent_for if waiter.known_alive else settings.silent_for_others
        return now - max(waiter.since, heard or waiter.since) >= limit

    def _dismiss(self, waiters: list[Waiter[Ticket]]) -> list[Ticket]:
        for waiter in waiters:
            self._waiting.remove(waiter)
        return [waiter.ticket for waiter in waiters]
