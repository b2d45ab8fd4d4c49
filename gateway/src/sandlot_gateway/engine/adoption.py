"""Adopts sandboxes that this gateway did not bring up or has forgotten: from sidecars, records and its disk."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_contract.statuses import Status
from sandlot_contract.verdicts import SandboxVerdict

from sandlot_gateway.core.backend import Backend
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.core.owners import Claim, RecordedEnd
from sandlot_gateway.core.slot import Loss
from sandlot_gateway.directory import Directory
from sandlot_gateway.sandboxes import (
    ForeignClaim,
    Sandbox,
    from_pending_create,
    owner_in,
    recovered,
    started_in,
)
from sandlot_gateway.tasks import Tasks
from sandlot_gateway.tokens import Tokens

from .bringup import BringUp
from .claim_failures import UNSAID
from .ends import Ends
from .following import Following
from .open_creates import OpenCreates
from .pending import PendingStore

_log = logging.getLogger(__name__)

# Verdicts that a gateway decides; all others are the end of an instance and its claim.
_DECIDED: frozenset[str] = frozenset(
    {
        SandboxVerdict.DELETED,
        SandboxVerdict.RESET_FAILED,
        SandboxVerdict.START_FAILED,
        SandboxVerdict.RUN_LOST,
    }
)
# Those of them that a caller's request causes, or its silence.
_ASKED_FOR: frozenset[str] = frozenset(
    {SandboxVerdict.DELETED, SandboxVerdict.RESET_FAILED, SandboxVerdict.RUN_LOST}
)
# Those of ends that a gateway tells a sidecar.
_TOLD_BY_GATEWAYS: frozenset[str] = frozenset({SandboxVerdict.DELETED, SandboxVerdict.GIVEN_BACK})


class Adoption:
    """All methods but `close` return at once."""

    def __init__(
        self,
        *,
        creates: OpenCreates,
        directory: Directory,
        backend: Backend,
        tokens: Tokens,
        pending: PendingStore,
        bringup: BringUp,
        following: Following,
        ends: Ends,
        queued: Callable[[Sandbox], None],
        clock: Callable[[], float],
    ) -> None:
        """`queued` is called for each pending create whose caller has its id."""
        self._queued = queued
        self._creates = creates
        self._directory = directory
        self._backend = backend
        self._tokens = tokens
        self._pending = pending
        self._bringup = bringup
        self._following = following
        self._ends = ends
        self._clock = clock
        self._tasks = Tasks()

    # From sidecars.

    def owned(self, instance: Instance, state: dict[str, Any]) -> None:
        """Handle a sidecar's report of its owner, whichever gateway made the claim; its record may be missing."""
        # The gateway that made the claim restores the files; if it is dead, the sidecar ends itself.
        restoring = bool(state.get("restoring"))
        try:
            sandbox = recovered(state, now=self._clock())
        except ForeignClaim as error:
            if not restoring:
                _log.warning("a claim cannot be read: %s", error, extra={"instance": instance.id})
                self._ends.unreadable(instance, owner=owner_in(state))
            return
        self._backend.claimed(instance, sandbox.ownership(), ours=False)
        if not restoring:
            self._adopt(instance, sandbox)

    def _adopt(self, instance: Instance, sandbox: Sandbox) -> None:
        """Add the sandbox to the directory, or end the instance if the sandbox has ended."""
        known = self._directory.get(sandbox.id)
        if known is not None:
            if self._creates.brings_up(known.id):
                return
            if known.status is Status.RUNNING and known.instance_id == instance.id:
                return
            if known.status is not Status.PENDING and (
                known.asked_at >= sandbox.asked_at or known.verdict in _DECIDED
            ):
                # Also after a later claim: the gateway of this one died before it could release it.
                self._ends.retire(instance.id, sandbox.id, verdict=known.verdict or SandboxVerdict.GIVEN_BACK)
                return
            if not known.live:
                # What ended was the instance of an earlier claim whose answer was lost; this is a later claim's.
                self._directory.drop(known)
                known = None
        token = self._tokens.sandbox(instance.id, sandbox.generation, sandbox.id, instance.key_id)
        self._ends.confirmed(instance.id)
        if known is None:
            self._directory.add(sandbox)
        else:
            # Another gateway's pending create, or claimed a second time. Keep the object: callers may wait on it.
            self._ends.retire(known.instance_id, known.id, verdict=SandboxVerdict.GIVEN_BACK)
            sandbox.pending_elsewhere = known.pending_elsewhere
            for name in Sandbox.__struct_fields__:
                setattr(known, name, getattr(sandbox, name))
            sandbox = known
        self._directory.running(sandbox, address=instance.address, token=token)
        self._pending.remove(sandbox.id)

    def is_news(self, sandbox_id: SandboxId | None, loss: Loss) -> bool:
        """Return whether a sidecar's report of its end may be the only one of this sandbox's.

        A gateway that asked for the end records it itself, and a sandbox that it gave back goes on elsewhere.
        """
        if sandbox_id is None or loss.verdict in _TOLD_BY_GATEWAYS:
            return False
        known = self._directory.get(sandbox_id)
        return known is None or known.live

    def claim_in(self, state: dict[str, Any], loss: Loss) -> Claim | None:
        """Return the claim in a sidecar's report of its end, or None if that is no news of its sandbox."""
        if not self.is_news(owner_in(state), loss):
            return None
        try:
            return recovered(state, now=self._clock()).ownership()
        except ForeignClaim as error:
            _log.warning("a claim cannot be read: %s", error, extra={"instance": state.get("instance_id")})
            return None

    def ended(self, instance_id: InstanceId, state: dict[str, Any], loss: Loss) -> None:
        """Handle a sidecar's report of its end after the backend removed the instance."""
        claim = self.claim_in(state, loss)
        if claim is not None and loss.verdict in UNSAID and self._creates.works_on(claim.sandbox_id):
            claim = None  # others would take it for the sandbox's end, which may get another instance here
        if claim is not None:
            self.over(claim.recorded_end(loss), sought=True)
        self._ends.gone(instance_id, loss, heard=True, claim=claim)

    # From other gateways' records.

    def pending_create_found(self, sandbox_id: SandboxId, request: dict[str, Any]) -> None:
        """Add another gateway's pending create, so that callers can ask for it here. One of them has its id."""
        known = self._directory.get(sandbox_id)
        if known is None:
            try:
                sandbox = from_pending_create(sandbox_id, request, now=self._clock())
            except ForeignClaim as error:
                _log.warning("a pending create cannot be read: %s", error, extra={"sandbox": sandbox_id})
                return
            self._directory.add(sandbox)
            self._queued(sandbox)
        elif not known.live:
            return
        self._ends.orphans.handed_out_elsewhere(sandbox_id)

    def over(self, end: RecordedEnd, *, sought: bool = False) -> None:
        """Apply an end that another gateway or the controller recorded.

        The end of a pending create's record ends the sandbox whatever it has become since. The end of an instance's
        record counts only while no sidecar has reported the instance. It stops a bring-up here only for a delete, and
        a loss stops the search for another gateway that has the sandbox only if it is `sought`: the answer, or its
        sidecar's word. An unknown sandbox is added as ended, if its record says enough.
        """
        if end.verdict == SandboxVerdict.GIVEN_BACK and not end.of_pending_create:
            return
        sandbox = self._directory.get(end.sandbox_id)
        brings_up = self._creates.brings_up(end.sandbox_id)
        works_on = self._creates.works_on(end.sandbox_id)
        counts = sought or end.verdict not in UNSAID  # only of a loss another gateway may know better
        if sandbox is None:
            if end.request is not None:
                self._ended(end, end.request)
        elif end.of_pending_create or (sandbox.status is Status.PENDING and end.verdict in _ASKED_FOR):
            # Also during a bring-up here: the ended instance belonged to a claim whose answer was lost.
            self._ends.delete(sandbox, verdict=end.verdict, message=end.message)
        elif sandbox.status is Status.PENDING and not brings_up and (counts or not works_on):
            self._ends.record(
                sandbox,
                verdict=end.verdict,
                message=end.message,
                exit_code=end.exit_code,
                # Of its own create this gateway would renew the record; only with a key can another have it elsewhere.
                of_instance=not works_on or sandbox.spec.key is not None,
            )

    def _ended(self, end: RecordedEnd, request: dict[str, Any]) -> None:
        """Add a sandbox that ended before this gateway knew it, so that its caller can ask any gateway."""
        try:
            sandbox = from_pending_create(end.sandbox_id, request, now=self._clock())
        except ForeignClaim as error:
            _log.warning("an ended sandbox cannot be read: %s", error, extra={"sandbox": end.sandbox_id})
            return
        sandbox.spec.key = None  # gateways that saw it live answer for its key
        sandbox.started_at = started_in(request)
        at = end.at or self._clock()
        sandbox.finish(end.verdict, at=at, message=end.message, exit_code=end.exit_code)
        self._directory.add(sandbox)

    # From this gateway's disk.

    def resume(self) -> None:
        """Finish recovery: continue pending creates, and end sandboxes whose sidecar is gone."""
        if self._backend.single_gateway:
            self._ends.end_unconfirmed()
        for sandbox, secrets in self._pending.load():
            known = self._directory.get(sandbox.id)
            if known is not None and known.status is not Status.PENDING:
                self._pending.remove(sandbox.id)
                continue
            if known is not None:
                self._directory.drop(known)  # read from its record, without the secrets
            self._directory.add(sandbox)
            self._queued(sandbox)
            self._tasks.spawn(self._backend.share_pending_create(sandbox.pending_create()))
            if sandbox.spec.key is not None and self._following.keyed.has_others:
                # Another gateway may have taken it over.
                self._following.follow(sandbox, spec=sandbox.spec, secrets=secrets)
            else:
                self._bringup.go_on(sandbox, secrets=secrets)

    async def close(self, *, timeout: float) -> int:
        """Wait up to `timeout` seconds, then cancel the rest; return their number."""
        return await self._tasks.close(timeout=timeout)
