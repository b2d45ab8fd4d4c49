"""Gives the members of a group their instances at the same time: each member's bring-up waits here until all have one.

Members that lose their instance after that, to another gateway's claim, get another one like any create.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from sandlot_contract.ids import SandboxId
from sandlot_contract.template import Template

from sandlot_gateway.core.group_turns import Collect, GiveBack, GroupId, GroupTurns, Turn, full
from sandlot_gateway.core.supply_events import CannotStart, Grant

from .group_ticket import GroupTicket
from .supply import Supply
from .tickets import Need, Ticket


class GroupPlaces:
    """The groups whose members wait for their instances. One per gateway, on the event loop's clock."""

    def __init__(self, supply: Supply, turns: GroupTurns) -> None:
        self._supply = supply
        self._turns = turns
        self._groups: dict[GroupId, _Group] = {}
        self._of: dict[SandboxId, _Group] = {}
        self._timer: asyncio.TimerHandle | None = None

    def has(self, group_id: GroupId) -> bool:
        """Return whether the group has no instances yet."""
        return group_id in self._groups

    def full(self, tenant: str, run: str, *, limit: int) -> int | None:
        """Return how many groups wait if one more of this run may not."""
        # Also those that ask other gateways or read secrets: else any number could begin at once.
        waiting = [
            (group.tenant, group.run) for group in self._groups.values() if group.id != self._turns.collecting
        ]
        return len(waiting) if full(waiting, tenant, run, limit=limit) else None

    def expect(self, group_id: GroupId, sandbox_ids: Iterable[SandboxId], *, tenant: str, run: str) -> None:
        """Begin a group of these sandboxes, whose bring-ups ask for their places next."""
        group = self._groups[group_id] = _Group(self, group_id, tenant, run, set(sandbox_ids))
        self._of.update(dict.fromkeys(group.expected, group))

    def ticket(self, sandbox_id: SandboxId, need: Need, *, at_once: bool) -> GroupTicket | None:
        """Return the place of a member whose group has no instances yet, None for any other sandbox."""
        group = self._of.get(sandbox_id)
        return group.ticket(sandbox_id, need, begun=at_once) if group is not None else None

    def drop(self, sandbox_id: SandboxId) -> None:
        """Forget a member that needs no instance here: it has ended, or another gateway has it."""
        if (group := self._of.get(sandbox_id)) is not None:
            group.drop(sandbox_id)

    def cancel(self, group_id: GroupId) -> None:
        """Give up the places of a group, and the instances that it holds."""
        if (group := self._groups.get(group_id)) is not None:
            group.cancel()

    def close(self) -> None:
        for group in list(self._groups.values()):
            group.cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # For _Group.

    def collected_at_once(self, needs: list[Need]) -> list[Ticket] | None:
        return self._supply.together(needs)

    def place(self, need: Need) -> Ticket:
        """Return a place in the queue of all creates, which waits whatever the queue is like."""
        return self._supply.ticket(need, patient=True)

    def join(self, group: _Group) -> None:
        templates = group.templates
        self._act(
            self._turns.join(group.id, tenant=group.tenant, run=group.run, now=_now(), templates=templates)
        )

    def got(self, group: _Group) -> None:
        self._turns.got(group.id, now=_now())
        self._arm()

    def leave(self, group: _Group) -> None:
        """Forget a group that has its instances, or none of its members left."""
        if self._groups.pop(group.id, None) is group:
            for sandbox_id in [one for one, of in self._of.items() if of is group]:
                del self._of[sandbox_id]
            self._act(self._turns.leave(group.id, now=_now()))

    def forget(self, sandbox_id: SandboxId) -> None:
        self._of.pop(sandbox_id, None)

    def position(self, group: _Group) -> int:
        return self._turns.position(group.id)

    # Inside.

    def _act(self, turns: Iterable[Turn]) -> None:
        for turn in turns:
            match turn:
                case Collect(group_id):
                    self._groups[group_id].collect()
                case GiveBack(group_id):
                    self._groups[group_id].give_back()
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due = self._turns.next_due()
        loop = asyncio.get_running_loop()
        self._timer = None if due is None else loop.call_at(max(due, loop.time()), self._due)

    def _due(self) -> None:
        self._timer = None
        self._act(self._turns.step(_now()))


class _Group:
    """One group, from its begin until all its members have an instance."""

    def __init__(
        self, places: GroupPlaces, group_id: GroupId, tenant: str, run: str, expected: set[SandboxId]
    ) -> None:
        self.id = group_id
        self.tenant = tenant
        self.run = run
        self.expected = expected  # members that have not asked for their place
        self._places = places
        self._tickets: dict[SandboxId, GroupTicket] = {}
        self._joined = self._over = False

    @property
    def position(self) -> int:
        return self._places.position(self)

    @property
    def templates(self) -> list[Template]:
        """Return what its members need."""
        return [ticket.need.template for ticket in self._tickets.values()]

    def ticket(self, sandbox_id: SandboxId, need: Need, *, begun: bool) -> GroupTicket:
        self.expected.discard(sandbox_id)
        ticket = self._tickets[sandbox_id] = GroupTicket(self, need, begun=begun)
        self.look()
        return ticket

    def drop(self, sandbox_id: SandboxId) -> None:
        self._places.forget(sandbox_id)
        self.expected.discard(sandbox_id)
        if (ticket := self._tickets.pop(sandbox_id, None)) is not None:
            ticket.give_up()
            ticket.future.cancel()
        self.look()

    def without(self, ticket: GroupTicket) -> None:
        found = next((one for one, held in self._tickets.items() if held is ticket), None)
        if found is not None and not self._over:
            self.drop(found)

    def cancel(self) -> None:
        """Give up all members' places."""
        self._over = True  # else what is left after each member would be looked at as a group
        for ticket in self._tickets.values():
            ticket.give_up()
            ticket.future.cancel()
        self.expected.clear()
        self._tickets.clear()
        self._places.leave(self)

    def look(self) -> None:
        """Go on if all members have asked for their places, or have got what they asked for."""
        if self._over or self.expected or not all(ticket.begun for ticket in self._tickets.values()):
            return
        if not self._tickets:
            self._over = True
            self._places.leave(self)
        elif not self._joined:
            tickets = list(self._tickets.values())
            places = self._places.collected_at_once([ticket.need for ticket in tickets])
            if places is not None:
                for ticket, place in zip(tickets, places, strict=True):
                    ticket.real = place
                self._hand_over()
            else:
                self._joined = True
                self._places.join(self)
        elif not self._replaced() and all(
            ticket.real is not None and ticket.real.granted for ticket in self._tickets.values()
        ):
            self._hand_over()

    def collect(self) -> None:
        """Take a place for each member."""
        for ticket in list(self._tickets.values()):
            self._place(ticket)

    def give_back(self) -> None:
        """Give up all places and instances; the members wait on."""
        for ticket in self._tickets.values():
            ticket.give_up()

    def _place(self, ticket: GroupTicket) -> None:
        ticket.real = self._places.place(ticket.need)
        ticket.real.when_done(partial(self._came, ticket, ticket.real))

    def _replaced(self) -> bool:
        """Take places for members whose instances were lost since their grants; return whether there were any.

        Nothing says so at the loss: it is found when the next instance comes, and the last one hands over none without.
        """
        # Without a limit but the group's deadline, as for a single create: what was ready says nothing of the request.
        found = [ticket for ticket in self._tickets.values() if ticket.was_taken]
        for ticket in found:
            ticket.give_up()  # the ledger keeps a lost slot until its hold ends
            self._place(ticket)
        return bool(found)

    def _came(self, ticket: GroupTicket, place: Ticket, future: asyncio.Future[Grant]) -> None:
        if ticket.real is not place or self._over or ticket.future.done():
            return  # given up meanwhile
        if future.cancelled():
            ticket.future.cancel()  # the gateway stops
        elif (error := future.exception()) is None:
            self._places.got(self)
            self.look()
        elif isinstance(error, CannotStart) or ticket.may_start_again(error):
            self._place(ticket)  # it waits until the group's deadline
        else:
            ticket.real = None
            ticket.future.set_exception(error)
            ticket.future.exception()  # its member may have ended: nobody would read it, which asyncio logs

    def _hand_over(self) -> None:
        self._over = True
        for ticket in self._tickets.values():
            if ticket.real is not None and not ticket.future.done():
                grant = ticket.real.grant
                queued = max(grant.queued, _now() - ticket.since - grant.start)
                ticket.future.set_result(replace(grant, queued=queued))
        self._places.leave(self)


def _now() -> float:
    return asyncio.get_running_loop().time()
