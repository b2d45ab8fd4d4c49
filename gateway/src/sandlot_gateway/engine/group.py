"""A group of sandboxes that is not handed out yet, and how it may fail."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status
from sandlot_contract.verdicts import SandboxVerdict

from sandlot_gateway.core.group_turns import GroupId
from sandlot_gateway.core.supply_events import CannotStart, QueueFull
from sandlot_gateway.sandboxes import Sandbox

from .errors import BadRequestField, GroupFailed, GroupKeyUsed
from .group_callers import GroupCallers

AGAIN = 5.0  # seconds after which to try a group again that has failed

Failure = GroupFailed | BadRequestField | QueueFull | CannotStart


@dataclass(eq=False)
class Group:
    """One group of this gateway, until it is handed out or has failed."""

    id: GroupId
    tenant: str
    callers: GroupCallers
    members: list[Sandbox] = field(default_factory=list[Sandbox])
    # Members from before, or of other gateways: a caller may have them.
    known: set[SandboxId] = field(default_factory=set[SandboxId])
    complete: bool = False
    handed_out: bool = False
    failure: Failure | None = None
    settled: asyncio.Event = field(default_factory=asyncio.Event)  # complete, or failed

    @property
    def running(self) -> int:
        """How many members run."""
        return sum(member.status is Status.RUNNING for member in self.members)


def lost(member: Sandbox) -> GroupFailed:
    verdict = member.verdict or SandboxVerdict.START_FAILED
    return GroupFailed(
        f"a sandbox of the group ended before all of them ran: {member.id}: {member.message or verdict}; the others were"
        " ended",
        verdict=verdict,
    )


def lost_later(member: Sandbox) -> GroupFailed:
    """Return the failure of a group that another caller may have."""
    verdict = member.verdict or SandboxVerdict.START_FAILED
    return GroupFailed(
        f"a sandbox of the group has ended: {member.id}: {member.message or verdict}; delete the group, and create another"
        " one with another key",
        verdict=verdict,
    )


def other_size(size: int) -> GroupKeyUsed:
    return GroupKeyUsed(f"the group of this key has {size} sandboxes: create another one with another key")


def groups_full(waiting: int, *, limit: int) -> QueueFull:
    return QueueFull(
        f"the queue of groups is full ({waiting} waiting, at most {limit}, a sixteenth of max_waiting); try again after Retry-After",
        position=waiting + 1,
        retry_after=AGAIN,
    )
