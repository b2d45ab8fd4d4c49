"""Creates groups of sandboxes: all of them, or none. A group is handed out only while all its members run.

A group is known by its id, which follows from its tenant and idempotency key, as do the members' own keys. So a gateway
that has lost it, or another one, finds its members again by these keys, and no record of groups is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from sandlot_contract.new_ids import new_sandbox_id
from sandlot_contract.statuses import Status
from sandlot_contract.verdicts import SandboxVerdict

from sandlot_gateway.core.group_turns import PATIENCE, GroupId
from sandlot_gateway.directory import Directory
from sandlot_gateway.keys import Tenant
from sandlot_gateway.sandboxes import GROUP_FAILED, Sandbox, Spec
from sandlot_gateway.tasks import Tasks

from .admission import Admission
from .bringup import BringUp
from .claims import Claimer
from .ends import Ends
from .errors import GroupFailed, GroupKeyUsed
from .following import Following
from .group import AGAIN, Failure, Group, groups_full, lost, lost_later, other_size
from .group_places import GroupPlaces

_log = logging.getLogger(__name__)

_PLACES = 16  # of `max_waiting` creates for each group that waits
_LOOK_EVERY = 1.0  # seconds between looks at a group that may get no further
_KEPT = 60.0  # seconds for which a failure is kept for a caller that asks again


class Groups:
    """`grace`: seconds for which a group without a caller is kept; `max_waiting`: creates that may wait."""

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
        alone: bool,
        max_waiting: int,
        grace: float,
        clock: Callable[[], float],
    ) -> None:
        self._places = places
        self._admission = admission
        self._directory = directory
        self._claimer = claimer
        self._bringup = bringup
        self._following = following
        self._ends = ends
        self._alone = alone
        self._most = max(1, max_waiting // _PLACES)
        self._grace = grace
        self._clock = clock
        self._groups: dict[GroupId, Group] = {}
        self._open = True
        self._tasks = Tasks()

    def get(self, group_id: GroupId, tenant: str) -> Group | None:
        """Return a group that has not been handed out."""
        group = self._groups.get(group_id)
        return group if group is not None and group.tenant == tenant else None

    def begin(
        self,
        group_id: GroupId,
        wanted: Sequence[tuple[Spec, dict[str, str]]],
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
        if group.leaving is not None:
            group.leaving.cancel()
            group.leaving = None
        group.callers += 1
        return group

    def _begun(
        self,
        group_id: GroupId,
        wanted: Sequence[tuple[Spec, dict[str, str]]],
        *,
        tenant: Tenant,
        deadline: float,
    ) -> Group:
        known = {spec.key: self._known(spec, tenant, size=len(wanted)) for spec, _ in wanted}
        new = [spec for spec, _ in wanted if known[spec.key] is None]
        run = wanted[0][0].run or ""
        if new:
            self._admission.check_group(tenant, new)
            waiting = self._places.full(tenant.name, run, limit=self._most)
            if waiting is not None:
                raise groups_full(waiting, limit=self._most)
        before = {found.id for found in known.values() if found is not None}
        group = self._groups[group_id] = Group(group_id, tenant.name, [], before)
        now = self._clock()
        begun: list[tuple[Sandbox, dict[str, str]]] = []
        for spec, secrets in wanted:
            if (found := known[spec.key]) is not None:
                group.members.append(found)
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
            self._places.expect(group_id, ids, tenant=tenant.name, run=run)
        asks_others = self._following.keyed.has_others
        for sandbox, secrets in begun:
            ticket = (
                None if sandbox.spec.secret_refs else self._claimer.ticket(sandbox, at_once=not asks_others)
            )
            starter = self._following if asks_others else self._bringup
            starter.begin(sandbox, secrets=secrets, ticket=ticket)
        self._tasks.spawn(self._watch(group, deadline=deadline))
        return group

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

    async def wait(self, group: Group, *, timeout: float) -> bool:
        """Wait until the group is complete; False: not yet. Raises Failure."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout if self._open else 0.0):
                await group.settled.wait()
        if group.failure is None and group.complete:
            self._check(group)
        if group.failure is not None:
            self._forget(group)
            raise group.failure
        return group.complete

    def left(self, group: Group, *, handed_out: bool = False, comes_back: bool = True) -> None:
        """Note the end of a call. `comes_back`: its caller can ask again; else its group ends if it has no other."""
        group.callers -= 1
        if handed_out:
            group.handed_out = True
            self._forget(group)
        elif group.callers == 0 and self._groups.get(group.id) is group and group.failure is None:
            group.back_by = asyncio.get_running_loop().time() + self._grace
            if not comes_back:
                self._abandoned(group)
            elif group.complete and not self._alone:
                self._leave(group)
            else:
                self._keep(group)

    def asked_elsewhere(self, sandbox: Sandbox) -> None:
        """Keep a member's group anew, because a caller waits for it at another gateway."""
        group = self._of(sandbox)
        if group is not None and group.leaving is not None:
            self._keep(group)

    def waits(self, sandbox: Sandbox) -> bool:
        """Return whether a caller here waits for a sandbox, or for its group."""
        if sandbox.spec.group is None:
            return self._ends.orphans.has_caller(sandbox.id)
        group = self._of(sandbox)
        if group is None or group.failure is not None:
            return False
        # Not while it is kept for another gateway: two of them would keep it for each other.
        return group.callers > 0 or asyncio.get_running_loop().time() < group.back_by

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

    def _keep(self, group: Group) -> None:
        """Keep it for the grace period from now on."""
        if group.leaving is not None:
            group.leaving.cancel()
        group.leaving = asyncio.get_running_loop().call_later(self._grace, self._abandoned, group)

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

    # Until it is complete.

    async def _watch(self, group: Group, *, deadline: float) -> None:
        members = [asyncio.create_task(self._member(group, at)) for at in range(len(group.members))]
        stuck = asyncio.create_task(self._stuck(group))
        try:
            done, _ = await asyncio.wait(members, timeout=deadline, return_when=asyncio.FIRST_EXCEPTION)
            failure = next(
                (task.exception() for task in done if not task.cancelled() and task.exception()), None
            )
            if group.failure is not None or not self._open:
                return
            if isinstance(failure, Failure):
                self._fail(group, failure)
            elif failure is not None:
                _log.error("a group failed in an unexpected way", exc_info=failure)
                self._fail(group, GroupFailed("internal error", retry_after=AGAIN))
            elif not all(task.done() for task in members):
                running = group.running
                self._fail(
                    group,
                    GroupFailed(
                        f"no room for the whole group within its deadline of {deadline:g} s: {running} of"
                        f" {len(group.members)} sandboxes ran, and were ended; try again after Retry-After, or create a"
                        " smaller group",
                        retry_after=AGAIN,
                    ),
                )
            else:
                group.complete = True
                self._check(group)
                group.settled.set()
                if group.callers == 0 and group.failure is None and not self._alone:
                    self._leave(group)
        finally:
            for task in (*members, stuck):
                task.cancel()
            await asyncio.gather(*members, stuck, return_exceptions=True)

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
            await self._directory.changed(sandbox.id, timeout=_KEPT)
        refusal = self._bringup.refusal(sandbox.id)
        if refusal is not None:
            raise refusal
        if sandbox.status is not Status.RUNNING:
            raise lost(sandbox)

    async def _stuck(self, group: Group) -> None:
        """Fail the group if members lost their instances to other gateways, and get no other ones.

        Another group may hold what these lack, and wait for what the others here hold. A single gateway cannot lose one.
        """
        loop = asyncio.get_running_loop()
        since, before = loop.time(), 0
        while not self._alone:
            await asyncio.sleep(_LOOK_EVERY)
            running = group.running
            waits = any(self._claimer.position(member.id) is not None for member in group.members)
            if running != before or not running or not waits:
                since, before = loop.time(), running
            elif (
                loop.time() - since > 2 * PATIENCE
            ):  # a cold start in place of a lost one may take as long as any
                text = (
                    f"other creates took instances of this group: {running} of {len(group.members)} sandboxes ran, and"
                    " were ended; try again after Retry-After"
                )
                self._fail(group, GroupFailed(text, retry_after=AGAIN))
                return

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
        if group.leaving is not None:
            group.leaving.cancel()
            group.leaving = None
        if self._groups.get(group.id) is group:
            del self._groups[group.id]

    def release(self) -> None:
        """Wake all calls that wait, after `Directory.release`: another gateway, or the next one, finds the members."""
        self._open = False
        for group in self._groups.values():
            group.settled.set()

    async def close(self, *, timeout: float) -> int:
        """Cancel what waits for groups; return how many that were."""
        self._places.close()
        for group in list(self._groups.values()):
            self._forget(group)
        return await self._tasks.close(timeout=timeout)
