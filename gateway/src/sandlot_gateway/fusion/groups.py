"""The sandboxes in which code of one tenant runs in one place, and the requests that wait for one of them."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from sandlot_contract.statuses import Status

from sandlot_gateway.fusion_option import Place
from sandlot_gateway.keys import Tenant
from sandlot_gateway.sandboxes import Sandbox


class NoWorker(Exception):
    """Raised when no sandbox is free in time; a later request may find one."""


class CannotCreate(Exception):
    """Raised when a sandbox cannot be created now; `retry_after` in seconds.

    `over_quota`: the end of another sandbox of the tenant makes room.
    """

    def __init__(self, message: str, *, retry_after: float = 1.0, over_quota: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.over_quota = over_quota


class Misconfigured(Exception):
    """Raised when no wait helps: an operator has to change a setting."""


@dataclass(slots=True)
class Worker:
    """A sandbox that runs one request at a time."""

    sandbox: Sandbox
    reusable: bool = True  # False: what it ran cannot be undone by a reset
    programs: dict[str, str | None] = field(default_factory=dict)  # paths of programs that were looked for
    idle_since: float = 0.0


@dataclass(slots=True)
class Group:
    """The workers of one tenant and place."""

    who: Tenant
    place: Place
    total: int = 0  # also those that are starting, run a request or are reset
    starting: int = 0
    free: list[Worker] = field(default_factory=list)  # the last used one is the last
    waiting: deque[asyncio.Future[Worker]] = field(default_factory=deque)
    trouble: str = ""  # why the last create failed
    # Since when requests wait without a worker, because the tenant's quota has no room for one.
    starved_since: float | None = None
    room: asyncio.Event = field(default_factory=asyncio.Event)  # it may have room now

    @property
    def without_worker(self) -> bool:
        """Whether no worker can come back to those that wait."""
        return self.total == self.starting

    def take_free(self) -> Worker | None:
        while self.free:
            worker = self.free.pop()
            if worker.sandbox.status is Status.RUNNING:
                return worker
            self.total -= 1
        return None

    def fail_all(self, error: Exception) -> None:
        """Raise this in all requests that wait."""
        while self.waiting:
            self.waiting.popleft().set_exception(error)
