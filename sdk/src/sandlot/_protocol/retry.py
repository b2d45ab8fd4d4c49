"""Decides whether and when to retry a request; the caller supplies the time."""

from __future__ import annotations

import random
from dataclasses import dataclass

FIRST_DELAY = 0.05
MAX_DELAY = 2.0
# Seconds for each connection attempt. The kernel resends a lost SYN only after a second, and clusters with pod
# churn lose some, while a node reloads its packet filter.
CONNECT_TIMEOUTS = (0.3, 0.9, 2.7, 6.1)
# Factor on the window while a live gateway reports that it cannot reach the sandbox: a cluster takes a minute or
# two to detect a lost node, and a client that gives up earlier never gets the verdict.
UNREACHABLE_PATIENCE = 3.0
STRANGER_PATIENCE = 2.0  # seconds for a server that has never responded to this client: probably a wrong URL


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt without a usable response: `status` 0 means that the connection failed."""

    sent: bool  # the server may have begun to process the request
    status: int = 0
    code: str = ""
    retry_after: float | None = None

    @property
    def busy(self) -> bool:
        """True when the server rejected the request at once, and nothing has run."""
        return self.status == 429 or (self.status == 503 and self.code != "internal")

    @property
    def unreachable(self) -> bool:
        """True when the server reports that it cannot reach the sandbox."""
        return self.status == 502 and self.code in ("sidecar_unreachable", "sidecar_lost")


def retryable_status(status: int, *, code: str) -> bool:
    """Return whether this response is not about the request itself, so that a retry may succeed."""
    return status in (429, 503, 504) or (status == 502 and code != "sandbox_not_found")


class Retry:
    """Retry state of one call. `after` returns the seconds to wait before the next attempt, or None to give up.

    `safe` requests (idempotent ones, or ones with an op id) are retried after any failure; others only when nothing
    can have run. Lost connections are retried until `window` seconds after the first of consecutive failures, a
    sandbox that the server cannot reach three times as long, a busy server until `busy_window` seconds after, and
    nothing after `deadline`.
    """

    __slots__ = ("_attempt", "_first", "_random", "busy_window", "deadline", "safe", "window")

    def __init__(
        self,
        *,
        safe: bool,
        window: float = 60.0,
        busy_window: float = 600.0,
        deadline: float | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.safe = safe
        self.window = window
        self.busy_window = busy_window
        self.deadline = deadline
        self._attempt = 0
        self._first: float | None = None
        self._random = rng or random

    def progress(self) -> None:
        """Record progress: the next failure counts as the first."""
        self._attempt = 0
        self._first = None

    def after(self, failure: Failure, *, now: float, stranger: bool = False) -> float | None:
        if failure.sent and not self.safe and not failure.busy:
            return None
        if self._first is None:
            self._first = now
        window = self.busy_window if failure.busy else self.window
        if failure.unreachable:
            window *= UNREACHABLE_PATIENCE
        if stranger and not failure.sent:
            window = min(window, STRANGER_PATIENCE)
        delay = min(MAX_DELAY, FIRST_DELAY * 2**self._attempt)
        self._attempt = min(self._attempt + 1, 16)
        delay *= 0.5 + self._random.random()
        if failure.retry_after is not None:
            delay = max(delay, failure.retry_after * (0.75 + 0.5 * self._random.random()))
        at = now + delay
        if at > self._first + window or (self.deadline is not None and at > self.deadline):
            return None
        return delay
