"""When to send a request again, and after how long: decided from what failed, with no clock of its own."""

from __future__ import annotations

import random
from dataclasses import dataclass

FIRST_DELAY = 0.05
MAX_DELAY = 2.0
# Seconds for each attempt at a connection. A first packet that got lost is repeated by the kernel only after a second,
# and in a cluster where pods come and go some are: those that find a node's packet filter being put anew.
CONNECT_TIMEOUTS = (0.3, 0.9, 2.7, 6.1)
# Times the window: a gateway that lives says of a sandbox that it cannot reach it, and a cluster takes a minute or two
# to find out that a node is lost. Who gives up before that never hears the verdict.
UNREACHABLE_PATIENCE = 3.0
STRANGER_PATIENCE = 2.0  # seconds for a server that has never answered this client: probably a wrong URL


@dataclass(frozen=True, slots=True)
class Failure:
    """One attempt that gave no usable answer: `status` 0 means that the connection failed."""

    sent: bool  # the server may have begun to work on the request
    status: int = 0
    code: str = ""
    retry_after: float | None = None

    @property
    def busy(self) -> bool:
        """The server refused at once, and nothing has run."""
        return self.status == 429 or (self.status == 503 and self.code != "internal")

    @property
    def unreachable(self) -> bool:
        """The server has an answer: that it does not reach the sandbox."""
        return self.status == 502 and self.code in ("sidecar_unreachable", "sidecar_lost")


def retryable_status(status: int, *, code: str) -> bool:
    """Whether this answer says nothing about the request itself, so that another attempt may fare better."""
    return status in (429, 503, 504) or (status == 502 and code != "sandbox_not_found")


class Retry:
    """The memory of one call. `after` gives the seconds to wait before the next attempt, or None to give up.

    `safe` requests (idempotent ones, or ones that carry an op id) are sent again whatever happened; others only
    when nothing can have run. Lost connections are retried until `window` seconds after the first failure in a
    row, a sandbox that the server does not reach three times as long, refusals of a busy server until `busy_window`
    seconds after, and nothing after `deadline`.
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
        """An attempt got somewhere: the next failure begins a new row."""
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
