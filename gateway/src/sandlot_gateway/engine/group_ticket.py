"""A group member's place in the queue, and when it gets another one."""

from __future__ import annotations

import asyncio
from typing import Protocol

from sandlot_contract.verdicts import SandboxVerdict

from sandlot_gateway.core.supply_events import Grant, StartFailed

from .tickets import Need, Ticket

# Ends of starts that say nothing of what was asked for: each has two starts, as that of a single create.
_LOST: frozenset[str] = frozenset(
    {
        SandboxVerdict.EVICTED,
        SandboxVerdict.NODE_LOST,
        SandboxVerdict.SIDECAR_LOST,
        SandboxVerdict.SANDBOX_LOST,
    }
)
_MORE_PLACES = 2  # of one member whose starts were lost


class Members(Protocol):
    """What a ticket asks of its group."""

    @property
    def position(self) -> int: ...

    def look(self) -> None: ...

    def without(self, ticket: GroupTicket) -> None: ...


class GroupTicket:
    """A member's place, used like a `Ticket`; it comes to a grant together with those of the other members."""

    def __init__(self, group: Members, need: Need, *, begun: bool) -> None:
        self.need = need
        self.begun = begun
        self.since = asyncio.get_running_loop().time()
        self.losses = 0  # of places, by the infrastructure
        self.real: Ticket | None = None  # while its group collects
        self.future: asyncio.Future[Grant] = asyncio.get_running_loop().create_future()
        self._group = group

    async def wait(self) -> Grant:
        return await self.future

    def cancel(self) -> None:
        self.future.cancel()
        self._group.without(self)

    def begin(self) -> None:
        self.begun = True
        self._group.look()

    def give_back(self) -> None:
        if self.real is not None and self.future.done():
            self.real.give_back()
        else:
            self.cancel()

    @property
    def position(self) -> int:
        return self._group.position

    @property
    def estimated_wait(self) -> float | None:
        """Unknown, as it depends on how many instances each group needs that is before its own."""
        return None

    @property
    def trouble(self) -> str | None:
        return self.real.trouble if self.real is not None else None

    # For its group.

    @property
    def was_taken(self) -> bool:
        """Whether the instance that it got has been lost since, or has another owner."""
        return self.real is not None and self.real.granted and self.real.grant.hold.taken is not None

    def may_start_again(self, error: BaseException) -> bool:
        """Return whether the member gets another place after its starts failed, and count that."""
        if not isinstance(error, StartFailed) or error.verdict not in _LOST:
            return False
        self.losses += 1
        return self.losses <= _MORE_PLACES

    def give_up(self) -> None:
        """Give up the place in the queue of all creates, or the instance."""
        place, self.real = self.real, None
        if place is not None:
            place.give_back()
