"""Creates groups of sandboxes: all of them, or none. A group is handed out only while all its members run.

A group is known by its id, which follows from its tenant and idempotency key, as do the members' own keys. So a gateway
that has lost it, or another one, finds its members again by these keys, and no record of groups is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from sandlot_contract.statuses import Status
from sandlot_contract.verdicts import SandboxVerdict

from sandlot_gateway.core.group_turns import GroupId
from sandlot_gateway.directory import Directory
from sandlot_gateway.group_membership import GROUP_FAILED
from sandlot_gateway.keys import Tenant
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.tasks import Tasks

from .admission import Admission
from .claims import Claimer
from .ends import Ends
from .errors import GroupFailed
from .following import Following
from .group import Failure, Group, lost, lost_later, other_size
from .group_callers import GroupCallers
from .group_members import GroupMembers, Wanted
from .group_places import GroupPlaces

_KEPT = 60.0  # seconds for which a failure is kept for a caller that asks again


class Groups:
    """`alone`: no other gateway takes instances; `grace`: seconds for which a group without a caller is kept."""

    def __init__(
        self,
        *,
        members: GroupMembers,
        places: GroupPlaces,
        admission: Admission,
        directory: Directory,
        claimer: Claimer,
        following: Following,
        ends: Ends,
        alone: bool,
        grace: float,
        clock: Callable[[], float],
    ) -> None:
        self._members = members
        self._places = places
        self._admission = admission
        self._directory = directory
        self._claimer = claimer
        self._following = following
        self._ends = ends
        self._alone = alone
        self._grace = grace
        self._clock = clock
        self._groups: dict[GroupId, Group] = {}
        self._tasks = Tasks()

    def get(self, group_id: GroupId, tenant: str) -> Group | None:
        """Return a group that has not been handed out."""
        group = self._groups.get(group_id)
        return group if group is not None and group.tenant == tenant else None

    def check(self, wanted: Wanted, *, tenant: Tenant) -> None:
        """Raise what `begin` would raise now for a group that is not known here."""
        self._members.known(wanted, tenant=tenant)

    def begin(
        self,
        group_id: GroupId,
        wanted: Wanted,
        *,
        tenant: Tenant,
        deadline: float,
    ) -> Group:
        """Begin a group, or return the one of this id. Does not wait; each call needs one of `left`.

        `wanted`: each member's spec and secrets. `deadline`: seconds that it may take. Raises QuotaReached, QueueFull, and
        GroupKeyUsed if the group of this id has another size or has ended.
        """
        group = self._groups.get(group_id)
        if group is None:
            group = self._begun(group_id, wanted, tenant=tenant, deadline=deadline)
        elif len(group.members) != len(wanted):
            raise other_size(len(group.members))
        group.callers.came()
        return group

    def _begun(self, group_id: GroupId, wanted: Wanted, *, tenant: Tenant, deadline: float) -> Group:
        known = self._members.known(wanted, tenant=tenant)
        callers = GroupCallers(grace=self._grace, gone=lambda: self._abandoned(group))
        group = self._groups[group_id] = Group(group_id, tenant.name, callers)
        self._members.begin(group, wanted, known, tenant=tenant)
        self._tasks.spawn(self._watch(group, deadline=deadline))
        return group

    async def wait(self, group: Group, *, timeout: float) -> bool:
        """Wait until the group is complete; False: not yet. Raises Failure."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout if self._members.open else 0.0):
                await group.settled.wait()
        if group.failure is None and group.complete:
            self._check(group)
        if group.failure is not None:
            self._forget(group)
            raise group.failure
        return group.complete

    def left(self, group: Group, *, handed_out: bool = False, comes_back: bool = True) -> None:
        """Note the end of a call. `comes_back`: its caller can ask again; else its group ends if it has no other."""
        group.callers.left()
        if handed_out:
            group.handed_out = True
            self._forget(group)
        elif not group.callers.waiting and self._groups.get(group.id) is group and group.failure is None:
            if not comes_back:
                self._abandoned(group)
            elif group.complete and not self._alone:
                self._leave(group)
            else:
                group.callers.keep()

    def asked_elsewhere(self, sandbox: Sandbox) -> None:
        """Keep a member's group anew, because a caller waits for it at another gateway."""
        group = self._of(sandbox)
        if group is not None:
            group.callers.asked_elsewhere()

    def waits(self, sandbox: Sandbox) -> bool:
        """Return whether a caller here waits for a sandbox, or for its group."""
        if sandbox.spec.group is None:
            return self._ends.orphans.has_caller(sandbox.id)
        group = self._of(sandbox)
        return group is not None and group.failure is None and group.callers.expected

    def delete(self, group: Group) -> None:
        """End a group that has not been handed out."""
        self._fail(group, GroupFailed("the group was deleted", verdict=SandboxVerdict.DELETED))

    def ended(self, sandbox: Sandbox) -> None:
        """Fail the group of a sandbox that has ended, if it is not handed out yet."""
        group = self._of(sandbox)
        if group is not None and group.failure is None:
            # Not now: the end of this one is still being recorded.
            asyncio.get_running_loop().call_soon(self._lost, group, sandbox)

    def position(self, group: Group) -> int | None:
        """Return the place of the group in the queue, 1 for the next; None: none of its members waits."""
        found = [self._claimer.position(member.id) for member in group.members]
        return max((position for position in found if position is not None), default=None)

    def _of(self, sandbox: Sandbox) -> Group | None:
        """Return the group here of which it is a member."""
        ref = sandbox.spec.group
        group = self._groups.get(ref.id) if ref is not None else None
        if ref is None or group is None or not 0 <= ref.index < len(group.members):
            return None
        return group if group.members[ref.index] is sandbox else None

    def _leave(self, group: Group) -> None:
        """Leave a complete group without a caller here to its sidecars: another gateway may have handed it out.

        A caller that comes back finds it by its keys.
        """
        self._forget(group)
        for member in group.members:
            self._ends.orphans.hung_up(member)

    def _abandoned(self, group: Group) -> None:
        self._fail(group, GroupFailed("the group's caller left", verdict=SandboxVerdict.DELETED))
        self._forget(group)

    async def _watch(self, group: Group, *, deadline: float) -> None:
        failure = await self._members.all_run(group, deadline=deadline)
        if group.failure is not None or not self._members.open:
            return
        if failure is not None:
            self._fail(group, failure)
            return
        group.complete = True
        self._check(group)
        group.settled.set()
        if not group.callers.waiting and group.failure is None and not self._alone:
            self._leave(group)

    # Its end.

    def _check(self, group: Group) -> None:
        """Fail a complete group of which a member has ended since."""
        ended = next((member for member in group.members if member.status is not Status.RUNNING), None)
        if ended is not None:
            self._lost(group, ended)

    def _lost(self, group: Group, member: Sandbox) -> None:
        """Fail the group of a member that has ended. Another caller, which may have it, ends what it likes."""
        if group.failure is not None:
            return
        if group.handed_out:
            group.failure = lost_later(member)
        elif group.complete and not self._alone:
            group.failure = lost_later(member)
            group.settled.set()
            self._leave(group)
        else:
            self._fail(group, lost(member))

    def _fail(self, group: Group, failure: Failure) -> None:
        """End all members that it began, as if none had been requested; their keys are free again."""
        if group.failure is not None:
            return
        group.failure = failure
        self._places.cancel(group.id)
        for member in group.members:
            if member.id in group.known and not self._following.goes_on(member.id):
                self._ends.orphans.hung_up(member)  # this caller does not get it
            elif self._directory.get(member.id) is not member:
                continue  # it was refused, or another gateway has one for its key
            elif member.live and not member.asked_at:  # no sidecar has heard of it
                self._ends.withdraw(member, message=GROUP_FAILED, at=self._clock())
                self._admission.refused(member.tenant)
            else:
                self._ends.delete(member, message=GROUP_FAILED)
                self._directory.release_key(member)  # also of one that had ended
        group.settled.set()
        asyncio.get_running_loop().call_later(_KEPT, self._forget, group)

    def _forget(self, group: Group) -> None:
        group.callers.forget()
        if self._groups.get(group.id) is group:
            del self._groups[group.id]

    def release(self) -> None:
        """Wake all calls that wait, after `Directory.release`: another gateway, or the next one, finds the members."""
        self._members.release()
        for group in self._groups.values():
            group.settled.set()

    async def close(self, *, timeout: float) -> int:
        """Cancel what waits for groups; return how many that were."""
        self._places.close()
        for group in list(self._groups.values()):
            self._forget(group)
        return await self._tasks.close(timeout=timeout)
