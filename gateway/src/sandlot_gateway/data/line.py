"""Decides, without I/O, who waits for a connection of an upstream, how many dials serve them, and when it is dead."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

Ticket = TypeVar("Ticket")


@dataclass(frozen=True, slots=True)
class LineSettings:
    """Times in seconds."""

    max_dials: int = (
        4  # under way at once, however many wait; connections still grow to as many as calls need
    )
    # A refusal proves that no sidecar listens. The backend of a sandbox that lives gets this long to say that it has
    # ended, which tells more; for any other upstream a few attempts are enough.
    refused_for: float = 5.0
    refused_for_others: float = 0.05
    # Without any sign of life (a connection, an answer, a heartbeat) for this long it is dead, whatever the backend
    # says. Longer than a lost node takes to be told as such (docs/failures.md).
    silent_for: float = 120.0
    silent_for_others: float = 4.0  # a claim goes to the next instance then


@dataclass(slots=True, eq=False)
class Waiter(Generic[Ticket]):
    """One call in line. `known_alive`: the backend has not said that the upstream is dead."""

    ticket: Ticket
    since: float
    known_alive: bool


class Line(Generic[Ticket]):
    """First come, first served, by whatever comes first: a dial of anybody, or a connection that is given back.

    The owner starts `dials_wanted()` dials after each `join`, and ends a dial when `is_dial_needed()` says no.
    """

    def __init__(self, settings: LineSettings) -> None:
        self._settings = settings
        self._waiting: deque[Waiter[Ticket]] = deque()
        self._refused_since: float | None = None
        self.dials = 0
        self.timeouts = 0  # attempts in a row that got no answer
        self.reason = ""  # of the last failed attempt

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, ticket: Ticket, *, now: float, known_alive: bool) -> Waiter[Ticket]:
        waiter = Waiter(ticket, now, known_alive)
        self._waiting.append(waiter)
        return waiter

    def leave(self, waiter: Waiter[Ticket]) -> None:
        """It no longer waits; nothing happens when it was served or failed before."""
        if waiter in self._waiting:
            self._waiting.remove(waiter)

    def serve(self) -> Ticket | None:
        """Whose a connection is that is free now; None: nobody waits."""
        return self._waiting.popleft().ticket if self._waiting else None

    def begin_dials(self) -> int:
        """How many dials to start now; they count as under way from here on."""
        wanted = max(0, min(len(self._waiting), self._settings.max_dials) - self.dials)
        self.dials += wanted
        return wanted

    def is_dial_needed(self) -> bool:
        """Whether a dial whose attempt failed has somebody to try again for."""
        return self.dials <= len(self._waiting)

    def connected(self) -> None:
        """An attempt succeeded."""
        self.timeouts = 0
        self._refused_since = None

    def failed(self, *, now: float, refused: bool, reason: str, heard: float | None) -> list[Ticket]:
        """An attempt failed; returns those who wait no longer, as the upstream has to be taken for dead.

        `heard`: when anything last came from it.
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
        """Everybody who waits; they wait no longer."""
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
