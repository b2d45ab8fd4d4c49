"""Creates with an idempotency key where other gateways are: who brings one up, and who goes on when that one dies."""

from __future__ import annotations

import asyncio
import logging

import msgspec
from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status

from sandlot_gateway.core.backend import Backend
from sandlot_gateway.core.owners import KeyHolder
from sandlot_gateway.directory import Directory
from sandlot_gateway.sandboxes import Sandbox, Spec
from sandlot_gateway.tasks import Tasks

from .bringup import BringUp
from .ends import Ends
from .keyed import KeyedCreates
from .supply import Ticket

_log = logging.getLogger(__name__)

_FOLLOW_PAUSE = 1.0  # seconds between two looks whether the gateway that brings up a sandbox still does
_INSTEAD_KEPT = 30.0  # seconds, for whoever holds the create open to be told of the other one


class Following:
    """A create follows another gateway's with its key: this one has its secrets, and takes it over if need be."""

    def __init__(self, *, directory: Directory, backend: Backend, bringup: BringUp, ends: Ends) -> None:
        self._directory = directory
        self._backend = backend
        self._bringup = bringup
        self._ends = ends
        self._secrets: dict[SandboxId, dict[str, str]] = {}  # of those that are followed
        self._asking: dict[SandboxId, asyncio.Event] = {}  # until it is known whose it is
        # What another gateway had made for the key of one of ours.
        self._instead: dict[SandboxId, Sandbox] = {}
        self._tasks = Tasks()
        self._followers = Tasks()
        self.keyed = KeyedCreates(directory=directory, others=backend.others, works_on=bringup.under_way)

    def secrets(self, sandbox_id: SandboxId) -> dict[str, str] | None:
        return self._secrets.get(sandbox_id)

    def begin(self, sandbox: Sandbox, *, secrets: dict[str, str], ticket: Ticket) -> None:
        """Bring it up, unless another gateway has one for its key, which stands in its place then."""
        self._bringup.expect(sandbox, secrets=secrets)
        self._asking[sandbox.id] = asyncio.Event()
        self._tasks.spawn(self._begin(sandbox, secrets=secrets, ticket=ticket))

    async def decided(self, sandbox: Sandbox) -> Sandbox:
        """The one that stands for it, once it is known whose its key is."""
        if (asking := self._asking.get(sandbox.id)) is not None:
            await asking.wait()
        return self._instead.get(sandbox.id, sandbox)

    def follow(self, sandbox: Sandbox, *, spec: Spec, secrets: dict[str, str]) -> None:
        """Another gateway brings it up; should that one die, this one does, whose caller has said all that it takes."""
        if (
            sandbox.status is Status.PENDING
            and self.keyed.has_others
            and not self._bringup.under_way(sandbox.id)
            and sandbox.id not in self._secrets
        ):
            # What is known of it by another gateway's promise lacks what may hold a secret.
            sandbox.spec = msgspec.structs.replace(spec, name=sandbox.spec.name, labels=sandbox.spec.labels)
            self._secrets[sandbox.id] = secrets
            self._followers.spawn(self._follow(sandbox))

    async def _begin(self, sandbox: Sandbox, *, secrets: dict[str, str], ticket: Ticket) -> None:
        holder = None
        try:
            try:
                holder = (await self.keyed.ask(sandbox)).holder
            except BaseException:
                ticket.give_back()
                raise
            if holder is not None:
                ticket.give_back()
                self._bringup.forget(sandbox.id)
                self._stand_in(sandbox, await self.keyed.agreed(sandbox, holder), secrets=secrets)
        finally:
            self._asking.pop(sandbox.id).set()
        if holder is None:
            ticket.begin()
            await self._bringup.run(sandbox, secrets=secrets, ticket=ticket)

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

    async def _follow(self, sandbox: Sandbox) -> None:
        try:
            while self._is_followed(sandbox):
                answer = await self.keyed.ask(sandbox)
                if not self._is_followed(sandbox):
                    return
                holder = answer.holder
                if holder is None and answer.all_heard:
                    _log.warning(
                        "the gateway that brought up a sandbox has gone: this one goes on",
                        extra={"sandbox": sandbox.id},
                    )
                    self._bringup.go_on(sandbox, secrets=self._secrets[sandbox.id])
                    return
                if holder is not None and holder.verdict is not None and holder.sandbox_id == sandbox.id:
                    self._ends.record(
                        sandbox, verdict=holder.verdict, message=holder.message, exit_code=holder.exit_code
                    )
                    return
                self._backend.sought(sandbox.id)
                await self._directory.changed(sandbox.id, timeout=_FOLLOW_PAUSE)
        finally:
            self._secrets.pop(sandbox.id, None)

    def _is_followed(self, sandbox: Sandbox) -> bool:
        return sandbox.status is Status.PENDING and self._directory.get(sandbox.id) is sandbox

    async def close(self, *, timeout: float) -> None:
        await self._followers.close()
        await self._tasks.close(timeout=timeout)
