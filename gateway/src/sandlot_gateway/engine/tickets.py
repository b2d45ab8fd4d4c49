"""A create's place in the queue, and what it needs there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sandlot_contract.template import Template

from sandlot_gateway.core.owners import PendingCreate
from sandlot_gateway.core.reuse import Binding
from sandlot_gateway.core.slot import Hold
from sandlot_gateway.core.supply_events import Asked, AskId, Grant


class Queue(Protocol):
    """What a ticket asks of `Supply`."""

    def withdraw(self, ask: AskId) -> None: ...

    def look(self) -> None: ...

    def position(self, ask: AskId) -> int: ...

    def estimated_wait(self, ask: AskId) -> float | None: ...

    def trouble(self, ask: AskId) -> str | None: ...

    def put_back(self, hold: Hold, *, binding: Binding | None = None, awaits: str | None = None) -> bool: ...


@dataclass(slots=True, eq=False)
class Ticket:
    """A place in the queue; `wait` returns the instance, `cancel` gives up the place."""

    _supply: Queue
    _ask: AskId
    _future: asyncio.Future[Grant]

    @property
    def granted(self) -> bool:
        return self._future.done() and not self._future.cancelled() and self._future.exception() is None

    @property
    def grant(self) -> Grant:
        """What `wait` returns at once, if it is `granted`."""
        return self._future.result()

    def when_done(self, call: Callable[[asyncio.Future[Grant]], object]) -> None:
        """Call this soon after the place has come to a grant, a refusal or its end."""
        self._future.add_done_callback(call)

    async def wait(self) -> Grant:
        """Wait for an instance. Raises StartFailed, CannotStart, or CancelledError after `cancel`."""
        return await self._future

    def cancel(self) -> None:
        """Give up the place. A create that was granted an instance has to put it back itself."""
        self._supply.withdraw(self._ask)

    def begin(self) -> None:
        """Begin the start for a ticket that was made without `at_once`."""
        self._supply.look()

    def give_back(self) -> None:
        """Give up the place, or the instance if it has one already."""
        if not self._future.done():
            self.cancel()
        elif self.granted:
            self._supply.put_back(self._future.result().hold)

    @property
    def position(self) -> int:
        return self._supply.position(self._ask)

    @property
    def estimated_wait(self) -> float | None:
        """In how many seconds it may come to a grant; None if that is unknown."""
        return self._supply.estimated_wait(self._ask)

    @property
    def trouble(self) -> str | None:
        """Why it may have to wait for long, if that is known."""
        return self._supply.trouble(self._ask)


@dataclass(frozen=True, slots=True)
class Need:
    """What a create needs. Most fields as in `Asked`.

    `wanted`: returns the pending create, for the backend's record of a start that is meant for it.
    """

    template: Template
    tenant: str
    pool: str | None = None
    wanted: Callable[[], PendingCreate] | None = None
    avoid: frozenset[str] = frozenset()
    lays_image: bool = False
    run: str = ""

    def asked(self, ask: AskId, *, again: bool = False, patient: bool = False, at_once: bool = True) -> Asked:
        return Asked(
            ask,
            self.template,
            self.tenant,
            self.pool,
            again,
            patient,
            at_once,
            self.avoid,
            self.lays_image,
            self.run,
        )
