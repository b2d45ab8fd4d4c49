"""What this gateway learns of sandboxes that it did not bring up, or has forgotten: from sidecars, records, its disk."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status
from sandlot_contract.verdicts import SandboxVerdict

from sandlot_gateway.core.backend import Backend
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.core.owners import RecordedEnd
from sandlot_gateway.directory import Directory
from sandlot_gateway.sandboxes import NotOurs, Sandbox, owner_in, promised, recovered
from sandlot_gateway.tasks import Tasks
from sandlot_gateway.tokens import Tokens

from .bringup import BringUp
from .ends import Ends
from .following import Following
from .pending import PendingStore

_log = logging.getLogger(__name__)

# Ends that a gateway has decided; every other is of an instance, and of the claim that it had.
_DECIDED: frozenset[str] = frozenset(
    {SandboxVerdict.DELETED, SandboxVerdict.RESET_FAILED, SandboxVerdict.START_FAILED}
)
# Of these, the ones that a caller's request has led to.
_ASKED_FOR: frozenset[str] = frozenset({SandboxVerdict.DELETED, SandboxVerdict.RESET_FAILED})


class Learning:
    """All but `close` return at once."""

    def __init__(
        self,
        *,
        directory: Directory,
        backend: Backend,
        tokens: Tokens,
        pending: PendingStore,
        bringup: BringUp,
        following: Following,
        ends: Ends,
        clock: Callable[[], float],
    ) -> None:
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
        """Its sidecar tells of an owner, whoever made the claim: the backend's record of it may be missing."""
        # The gateway that made the claim brings its files; should it be dead, the sidecar ends itself.
        restoring = bool(state.get("restoring"))
        try:
            sandbox = recovered(state, now=self._clock())
        except NotOurs as error:
            if not restoring:
                _log.warning("a claim cannot be read: %s", error, extra={"instance": instance.id})
                self._ends.discard(instance, owner=owner_in(state))
            return
        self._backend.claimed(instance, sandbox.ownership(), ours=False)
        if not restoring:
            self._adopt(instance, sandbox)

    def _adopt(self, instance: Instance, sandbox: Sandbox) -> None:
        """Know the sandbox (again), or end the instance when it has ended."""
        known = self._directory.get(sandbox.id)
        if known is not None:
            if self._bringup.under_way(known.id):
                return
            if known.status is Status.RUNNING and known.instance_id == instance.id:
                return
            if known.status is not Status.PENDING and (
                known.asked_at >= sandbox.asked_at or known.verdict in _DECIDED
            ):
                # Also where another claim of it came later: its gateway died before it could give this one back.
                self._ends.retire(instance.id, sandbox.id, verdict=known.verdict or SandboxVerdict.GIVEN_BACK)
                return
            if not known.live:
                # What has ended was the instance of a claim that its gateway has not heard of; here it has another.
                self._directory.drop(known)
                known = None
        token = self._tokens.sandbox(instance.id, sandbox.generation, sandbox.id)
        self._ends.confirmed(instance.id)
        if known is None:
            self._directory.add(sandbox)
        else:
            # Promised by another gateway, or claimed there a second time. It stays the same object: somebody may wait.
            self._ends.retire(known.instance_id, known.id, verdict=SandboxVerdict.GIVEN_BACK)
            sandbox.promised = known.promised
            for name in Sandbox.__struct_fields__:
                setattr(known, name, getattr(sandbox, name))
            sandbox = known
        self._directory.running(sandbox, address=instance.address, token=token)
        self._pending.remove(sandbox.id)

    # From other gateways' records.

    def promised(self, sandbox_id: SandboxId, request: dict[str, Any]) -> None:
        """Another gateway has told a caller of it: it can be asked for here, and runs once its sidecar says so."""
        if self._directory.get(sandbox_id) is not None:
            return
        try:
            self._directory.add(promised(sandbox_id, request, now=self._clock()))
        except NotOurs as error:
            _log.warning("a pending create cannot be read: %s", error, extra={"sandbox": sandbox_id})

    def over(self, end: RecordedEnd) -> None:
        """Another gateway was asked for its end, or its own gateway is lost.

        The end of a promise ends it whatever it has become since; that of an instance's record only where nobody
        has heard of the instance yet, and what brings it up here goes on unless it was deleted. One that nobody here
        knows is known as ended, if its record tells enough.
        """
        if end.verdict == SandboxVerdict.GIVEN_BACK and not end.promised:
            return
        sandbox = self._directory.get(end.sandbox_id)
        if sandbox is None:
            if end.request is not None:
                self._ended(end, end.request)
        elif end.promised or (sandbox.status is Status.PENDING and end.verdict in _ASKED_FOR):
            # Also where it is brought up: the instance that has ended was that of a claim not heard of here.
            self._ends.delete(sandbox, verdict=end.verdict, message=end.message)
        elif sandbox.status is Status.PENDING and not self._bringup.under_way(end.sandbox_id):
            self._ends.record(sandbox, verdict=end.verdict, message=end.message, exit_code=end.exit_code)

    def _ended(self, end: RecordedEnd, request: dict[str, Any]) -> None:
        """It ended before it was heard of here: its caller asks any gateway what became of it."""
        try:
            sandbox = promised(end.sandbox_id, request, now=self._clock())
        except NotOurs as error:
            _log.warning("an ended sandbox cannot be read: %s", error, extra={"sandbox": end.sandbox_id})
            return
        sandbox.spec.key = None  # what came of a key is told by the gateways that saw it live
        at = end.at or self._clock()
        sandbox.finish(end.verdict, at=at, message=end.message, exit_code=end.exit_code)
        self._directory.add(sandbox)

    # From this gateway's disk.

    def resume(self) -> None:
        """Recovery is over: go on with pending creates, and give those whose sidecar is gone their verdict."""
        if self._backend.finds_all:
            self._ends.end_unconfirmed()
        for sandbox, secrets in self._pending.load():
            known = self._directory.get(sandbox.id)
            if known is not None and known.status is not Status.PENDING:
                self._pending.remove(sandbox.id)
                continue
            if known is not None:
                self._directory.drop(known)  # as its promise tells it, without the secrets
            self._directory.add(sandbox)
            self._tasks.spawn(self._backend.promise(sandbox.promise()))
            if sandbox.spec.key is not None and self._following.keyed.has_others:
                # Another gateway may have gone on with it.
                self._following.follow(sandbox, spec=sandbox.spec, secrets=secrets)
            else:
                self._bringup.go_on(sandbox, secrets=secrets)

    async def close(self, *, timeout: float) -> None:
        await self._tasks.close(timeout=timeout)
