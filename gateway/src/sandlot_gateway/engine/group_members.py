"""Begins the members of a group, finds those that there are by their keys, and waits until all of them run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sandlot_contract.new_ids import new_sandbox_id
from sandlot_contract.statuses import Status

from sandlot_gateway.core.group_turns import PATIENCE
from sandlot_gateway.directory import Directory
from sandlot_gateway.keys import Tenant
from sandlot_gateway.sandboxes import Sandbox, Spec

from .admission import Admission
from .bringup import BringUp
from .claims import Claimer
from .ends import Ends
from .errors import GroupFailed, GroupKeyUsed
from .following import Following
from .group import AGAIN, Failure, Group, groups_full, lost, other_size
from .group_places import GroupPlaces

_log = logging.getLogger(__name__)

Wanted = Sequence[tuple[Spec, dict[str, str]]]  # each member's spec and secrets

_PLACES = 16  # of `max_waiting` creates for each group that waits
_LOOK_EVERY = 1.0  # seconds between looks at a group that may get no further
_LONGEST_WAIT = 60.0  # seconds until a member that has not changed is looked at again


class GroupMembers:
    """`max_waiting`: creates that may wait."""

    def __init__(
        self,
        *,
        places: GroupPlaces,
        admission: Admission,
        directory: Directory,
        claimer: Claimer,
        bringup: BringUp,
        following: Following,
        ends: Ends,
        max_waiting: int,
        clock: Callable[[], float],
    ) -> None:
        self._places = places
        self._admission = admission
        self._directory = directory
        self._claimer = claimer
        self._bringup = bringup
        self._following = following
        self._ends = ends
        self._most = max(1, max_waiting // _PLACES)
        self._clock = clock
        self._open = True

    @property
    def open(self) -> bool:
        """Whether this gateway still brings up members."""
        return self._open

    def release(self) -> None:
        """Wait for no member any more."""
        self._open = False

    def known(self, wanted: Wanted, *, tenant: Tenant) -> dict[int, Sandbox]:
        """Return the members that there are, by their place in the group.

        Raises QuotaReached or QueueFull if the others may not begin, and GroupKeyUsed.
        """
        known = [self._known(spec, tenant, size=len(wanted)) for spec, _ in wanted]
        new = [spec for (spec, _), found in zip(wanted, known, strict=True) if found is None]
        if new:
            self._admission.check_group(tenant, new)
            waiting = self._places.full(tenant.name, new[0].run or "", limit=self._most)
            if waiting is not None:
                raise groups_full(waiting, limit=self._most)
        return {at: found for at, found in enumerate(known) if found is not None}

    def begin(self, group: Group, wanted: Wanted, known: Mapping[int, Sandbox], *, tenant: Tenant) -> None:
        """Begin the members that there are not yet."""
        now = self._clock()
        begun: list[tuple[Sandbox, dict[str, str]]] = []
        for at, (spec, secrets) in enumerate(wanted):
            if (found := known.get(at)) is not None:
                group.members.append(found)
                group.known.add(found.id)
                self._ends.orphans.asked(found)
                self._following.follow(found, spec=spec, secrets=secrets)
                continue
            sandbox = Sandbox(
                id=new_sandbox_id(now), tenant=tenant.name, spec=spec, created_at=now, updated_at=now
            )
            group.members.append(sandbox)
            begun.append((sandbox, secrets))
            self._admission.begun(tenant)
            self._directory.add(sandbox)
            self._ends.orphans.begun(sandbox)
        if begun:
            ids = [sandbox.id for sandbox, _ in begun]
            self._places.expect(group.id, ids, tenant=tenant.name, run=wanted[0][0].run or "")
        asks_others = self._following.keyed.has_others
        for sandbox, secrets in begun:
            ticket = (
                None if sandbox.spec.secret_refs else self._claimer.ticket(sandbox, at_once=not asks_others)
            )
            starter = self._following if asks_others else self._bringup
            starter.begin(sandbox, secrets=secrets, ticket=ticket)

    async def all_run(self, group: Group, *, deadline: float) -> Failure | None:
        """Wait until all members run; return why they do not after `deadline` seconds, or will never."""
        members = [asyncio.create_task(self._member(group, at)) for at in range(len(group.members))]
        every = asyncio.gather(*members)
        stuck = asyncio.create_task(self._stuck(group))
        waited: tuple[asyncio.Future[Any], ...] = (every, stuck)
        try:
            done, _ = await asyncio.wait(waited, timeout=deadline, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                return GroupFailed(
                    f"no room for the whole group within its deadline of {deadline:g} s: {group.running} of"
                    f" {len(group.members)} sandboxes ran, and were ended; try again after Retry-After, or create a"
                    " smaller group",
                    retry_after=AGAIN,
                )
            failure = every.exception() if every in done else stuck.exception() or stuck.result()
            if failure is None or isinstance(failure, Failure):
                return failure
            _log.error("a group failed in an unexpected way", exc_info=failure)
            return GroupFailed("internal error", retry_after=AGAIN)
        finally:
            for one in (*waited, *members):
                one.cancel()
            await asyncio.gather(*waited, *members, return_exceptions=True)

    def _known(self, spec: Spec, tenant: Tenant, *, size: int) -> Sandbox | None:
        """Return the member that has this key already."""
        found = self._directory.by_key(tenant.name, spec.key or "")
        if found is None:
            return None
        if found.spec.group is not None and found.spec.group.size != size:
            raise other_size(found.spec.group.size)
        if not found.live:
            raise GroupKeyUsed(
                f"the group of this key has ended, or a part of it: {found.id} is {found.verdict}; delete the group, and"
                " create another one with another key"
            )
        return found

    async def _member(self, group: Group, at: int) -> None:
        """Wait until one member runs. Raises Failure."""
        own = group.members[at]
        sandbox = await self._following.decided(own)
        if sandbox is not own:
            self._places.drop(own.id)
            group.known.add(sandbox.id)
            group.members[at] = sandbox
        await self._bringup.placed(sandbox.id)
        while self._open and sandbox.status is Status.PENDING and self._directory.get(sandbox.id) is sandbox:
            await self._directory.changed(sandbox.id, timeout=_LONGEST_WAIT)
        refusal = self._bringup.refusal(sandbox.id)
        if refusal is not None:
            raise refusal
        if sandbox.status is not Status.RUNNING:
            raise lost(sandbox)

    async def _stuck(self, group: Group) -> GroupFailed:
        """Wait until members have lost their instances, also to other gateways, and get no other ones.

        Another group may hold what these lack, and wait for what the others here hold.
        """
        loop = asyncio.get_running_loop()
        since, before = loop.time(), 0
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            running = group.running
            # A group that waits for its turn, or collects, has lost nothing; members may run that were found by their keys.
            waits = not self._places.has(group.id) and any(
                self._claimer.position(member.id) is not None for member in group.members
            )
            if running != before or not running or not waits:
                since, before = loop.time(), running
            elif (
                loop.time() - since > 2 * PATIENCE
            ):  # a cold start in place of a lost one may take as long as any
                return GroupFailed(
                    f"instances of this group were lost, or other creates took them: {running} of"
                    f" {len(group.members)} sandboxes ran, and were ended; try again after Retry-After",
                    retry_after=AGAIN,
                )
