"""Creates with an idempotency key among several gateways: which one brings it up, and which takes over when it dies."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec
from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status
from sandlot_contract.verdicts import SandboxVerdict

from sandlot_gateway.core.backend import Backend
from sandlot_gateway.core.owners import KeyAnswer, KeyHolder
from sandlot_gateway.directory import Directory
from sandlot_gateway.sandboxes import Sandbox, Spec
from sandlot_gateway.tasks import Tasks

from .bringup import BringUp
from .claim_failures import UNSAID, LostAtOnce
from .claims import Place
from .ends import Ends
from .keyed import KeyedCreates
from .open_creates import OpenCreates, Part

_log = logging.getLogger(__name__)

_FOLLOW_PAUSE = 1.0  # seconds between checks that the gateway bringing up a sandbox still does
_LOSSES = 5  # claims of one create that may be given back in a row
_INSTEAD_KEPT = 30.0  # seconds; callers that still hold the create open get the other sandbox


class Following:
    """Follows another gateway's create with the same key, and takes it over if that gateway dies."""

    def __init__(
        self,
        *,
        creates: OpenCreates,
        directory: Directory,
        backend: Backend,
        bringup: BringUp,
        ends: Ends,
        asked: Callable[[Sandbox], None],
        waits: Callable[[Sandbox], bool],
    ) -> None:
        """`asked`: called with a sandbox for which a caller waits at another gateway; `waits`: whether one does here."""
        self._creates = creates
        self._directory = directory
        self._backend = backend
        self._bringup = bringup
        self._ends = ends
        self._waits = waits
        # sandbox id -> set once the holder of its key is known
        self._asking: dict[SandboxId, asyncio.Event] = {}
        # our sandbox id -> another gateway's sandbox for the same key
        self._instead: dict[SandboxId, Sandbox] = {}
        self._tasks = Tasks()
        self._followers = Tasks()
        self.keyed = KeyedCreates(
            directory=directory,
            others=backend.others,
            works_on=creates.works_on,
            follows=creates.follows,
            asked=asked,
        )

    def begin(self, sandbox: Sandbox, *, secrets: dict[str, str], ticket: Place | None) -> None:
        """Bring it up, unless another gateway has a sandbox for its key, which then replaces it."""
        self._creates.begin(sandbox.id, Part.BRINGS_UP, secrets=secrets)
        self._asking[sandbox.id] = asyncio.Event()
        self._tasks.spawn(self._begin(sandbox, secrets=secrets, ticket=ticket))

    async def decided(self, sandbox: Sandbox) -> Sandbox:
        """Wait until the holder of its key is known, and return the sandbox to use."""
        if (asking := self._asking.get(sandbox.id)) is not None:
            await asking.wait()
        return self._instead.get(sandbox.id, sandbox)

    def goes_on(self, sandbox_id: SandboxId) -> bool:
        """Return whether this gateway brings it up, since it began it or the one that did is dead."""
        return self._creates.brings_up(sandbox_id)

    def follow(self, sandbox: Sandbox, *, spec: Spec, secrets: dict[str, str]) -> None:
        """Follow a sandbox that another gateway brings up, ready to take over: this caller sent the whole request."""
        if (
            sandbox.status is Status.PENDING
            and self.keyed.has_others
            and self._creates.secrets(sandbox.id) is None
        ):
            # Another gateway's record of the pending create lacks the fields that may hold a secret.
            known = sandbox.spec
            sandbox.spec = msgspec.structs.replace(
                spec, name=known.name, labels=known.labels, run=known.run, run_epoch=known.run_epoch
            )
            self._creates.begin(sandbox.id, Part.MAY_GO_ON, secrets=secrets)
            self._followers.spawn(self._follow(sandbox, secrets=secrets))

    def lost(self, sandbox: Sandbox, *, secrets: dict[str, str], lost: LostAtOnce, losses: int) -> bool:
        """Take over a create of this gateway whose claim was lost before its answer, for the `losses`-th time.

        Return False if the loss is the sandbox's end. Else another gateway may have the sandbox: one that takes this
        gateway for dead brings it up again, and gives this one's claim back.
        """
        given_back = lost.loss.verdict == SandboxVerdict.GIVEN_BACK
        alone = self._backend.single_gateway
        if (
            not sandbox.live
            or losses > _LOSSES
            or not (given_back or (lost.loss.verdict in UNSAID and not alone))
        ):
            return False
        if not given_back:
            self._ends.unanswered.looked_for(lost.loss, lost.instance_id)
        self._creates.begin(sandbox.id, Part.MAY_GO_ON if alone else Part.LOOKS, secrets=secrets)
        self._followers.spawn(self._after_loss(sandbox, lost, secrets=secrets, losses=losses))
        return True

    async def _after_loss(
        self, sandbox: Sandbox, lost: LostAtOnce, *, secrets: dict[str, str], losses: int
    ) -> None:
        if not self._backend.single_gateway:
            await self._look_for(sandbox)
            self._creates.follow_as(sandbox.id, Part.MAY_GO_ON)
        await self._follow(sandbox, secrets=secrets, lost=lost, losses=losses)

    async def _begin(self, sandbox: Sandbox, *, secrets: dict[str, str], ticket: Place | None) -> None:
        try:
            await self._ask_and_begin(sandbox, secrets=secrets, ticket=ticket)
        except Exception:  # else the create would be pending for ever, and hold its key
            _log.exception("a create failed in an unexpected way", extra={"sandbox": sandbox.id})
            self._bringup.failed(sandbox)
        finally:
            self._asking.pop(sandbox.id).set()

    async def _ask_and_begin(
        self, sandbox: Sandbox, *, secrets: dict[str, str], ticket: Place | None
    ) -> None:
        try:
            holder = (await self.keyed.ask(sandbox, is_new=True)).holder
        except BaseException:
            _give_back(ticket)
            raise
        if self._directory.get(sandbox.id) is not sandbox:  # its group has failed meanwhile
            _give_back(ticket)
            self._creates.brought_up(sandbox.id)
        elif holder is None:
            if ticket is not None:
                ticket.begin()
            self._bringup.begin(sandbox, secrets=secrets, ticket=ticket)
        else:
            _give_back(ticket)
            self._creates.brought_up(sandbox.id)
            try:
                holder = await self.keyed.agreed(sandbox, holder)
            except Exception:  # this one may yield to another, and says so when it is followed
                _log.exception("the question of a key failed", extra={"sandbox": sandbox.id})
            self._stand_in(sandbox, holder, secrets=secrets)

    def _stand_in(self, sandbox: Sandbox, holder: KeyHolder, *, secrets: dict[str, str]) -> None:
        self._directory.drop(sandbox)
        self._ends.orphans.ended(sandbox.id)
        known = self._directory.get(holder.sandbox_id)
        if known is None:
            known = Sandbox(
                holder.sandbox_id,
                sandbox.tenant,
                sandbox.spec,
                created_at=sandbox.created_at,
                updated_at=sandbox.updated_at,
            )
            self._directory.add(known)
        if holder.verdict is not None:
            self._ends.record(
                known, verdict=holder.verdict, message=holder.message, exit_code=holder.exit_code
            )
        if known.live:
            self._ends.orphans.asked(known)
        self._instead[sandbox.id] = known
        asyncio.get_running_loop().call_later(_INSTEAD_KEPT, self._instead.pop, sandbox.id, None)
        self.follow(known, spec=sandbox.spec, secrets=secrets)

    async def _follow(
        self, sandbox: Sandbox, *, secrets: dict[str, str], lost: LostAtOnce | None = None, losses: int = 0
    ) -> None:
        """Follow the create until it has changed. If no gateway has it, go on with it, or record how it was `lost`."""
        try:
            while self._is_followed(sandbox):
                answer = await self._asked_again(sandbox)
                if not self._is_followed(sandbox):
                    return
                # Another gateway may name its own sandbox for this key, if they could not reach each other: both go on.
                holder = next((one for one in answer.holders if one.sandbox_id == sandbox.id), None)
                self._creates.follow_as(sandbox.id, Part.MAY_GO_ON if holder is None else Part.FOLLOWS)
                if holder is None and answer.all_heard:
                    if lost is not None and lost.loss.verdict != SandboxVerdict.GIVEN_BACK:
                        self._ends.unanswered.lost(sandbox, lost.loss, lost.instance_id)
                        return
                    if sandbox.spec.group is not None:
                        self._ends.orphans.took_over(sandbox)
                    _log.warning(
                        "no gateway brings up a sandbox any more: this one goes on",
                        extra={"sandbox": sandbox.id},
                    )
                    self._bringup.go_on(sandbox, secrets=secrets, losses=losses)
                    return
                if holder is not None and holder.verdict is not None:
                    self._ends.record(
                        sandbox, verdict=holder.verdict, message=holder.message, exit_code=holder.exit_code
                    )
                    return
                await self._look_for(sandbox)
            self._creates.follow_as(sandbox.id, Part.FOLLOWS)
            await self._ends.orphans.running(sandbox)
        finally:
            self._creates.followed(sandbox.id)

    async def _asked_again(self, sandbox: Sandbox) -> KeyAnswer:
        try:
            return await self.keyed.ask(sandbox, waits=self._waits(sandbox))
        except Exception:  # else nobody would follow it any more, and it be pending for ever
            _log.exception("the question of a key failed", extra={"sandbox": sandbox.id})
            return KeyAnswer((), all_heard=False)

    async def _look_for(self, sandbox: Sandbox) -> None:
        """Ask the other gateways for its instance, and wait a moment for its sidecar's report."""
        self._backend.sought(sandbox.id)
        await self._directory.changed(sandbox.id, timeout=_FOLLOW_PAUSE, background=True)

    def _is_followed(self, sandbox: Sandbox) -> bool:
        return sandbox.status is Status.PENDING and self._directory.get(sandbox.id) is sandbox

    async def close(self, *, timeout: float) -> int:
        """Wait up to `timeout` seconds, then cancel the rest; return their number."""
        await self._followers.close()
        return await self._tasks.close(timeout=timeout)


def _give_back(ticket: Place | None) -> None:
    if ticket is not None:
        ticket.give_back()
