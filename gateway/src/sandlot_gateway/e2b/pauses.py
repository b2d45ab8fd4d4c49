"""Paused sandboxes: a checkpoint each, which any gateway finds by the sandbox's id, and what continues them.

The sandbox that continues a paused one has an id of its own, and says whom it continues (`Spec.continues`): its clients
go on with the id that they have.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto

import msgspec
from sandlot_contract.ids import SandboxId, created_at
from sandlot_contract.statuses import Status
from sandlot_contract.verdicts import SandboxVerdict

from sandlot_gateway.checkpoints.checkpoint import Checkpoint, State
from sandlot_gateway.control.checkpoints import begin_checkpoint, checkpoints_of
from sandlot_gateway.control.errors import ApiError
from sandlot_gateway.control.services import Services
from sandlot_gateway.data.answers import Receive
from sandlot_gateway.keys import Tenant
from sandlot_gateway.sandboxes import Sandbox, Spec

from . import pause_records as records
from .copies import begin_like, spec_to_copy, written
from .documents import id_of
from .failures import Problem
from .starts import started
from .store_answers import answer_of

PAUSED = "paused: connect to it to go on with its files"  # message of its end
_KILLED = "was killed while it was paused"  # error of the checkpoint of a pause
_SUFFIX = "e2b0"  # of the checkpoint's id, after the sandbox's: so a kill need not read all checkpoints
_WRITTEN_WITHIN = 900.0  # seconds; a client that leaves earlier finds the sandbox paused later
_ASK_AGAIN = (
    0.5,
    10.0,
)  # seconds, the first and the longest time between two looks at a sandbox that does not answer

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Paused:
    """`sandbox`: as it was, under the id that its clients have."""

    sandbox: Sandbox
    checkpoint: Checkpoint
    nonce: str

    @property
    def id(self) -> SandboxId:
        return self.sandbox.id


def is_pause(checkpoint: Checkpoint) -> bool:
    return records.ENTRY in checkpoint.metadata


def already_paused(sandbox_id: SandboxId) -> Problem:
    return Problem(409, f"the sandbox {sandbox_id} is paused already")


class Due(Enum):
    """Whether a sandbox's time is over, by its sidecar."""

    NOW = auto()
    LATER = auto()
    UNKNOWN = auto()  # it does not answer, or has just ended


class Pauses:
    def __init__(self, have: Services) -> None:
        self._have = have

    def check_can_pause(self, spec: Spec) -> None:
        """Check that a pause can keep what a sandbox is created with. Raises Problem, ApiError."""
        checkpoints_of(self._have)
        records.check_fits(spec)

    async def write_due(self, sandbox: Sandbox) -> Checkpoint | None:
        """Write the files of a sandbox that is over its time; None if another gateway does. Raises Problem, ApiError."""
        checkpoints = checkpoints_of(self._have)
        found = await answer_of(checkpoints.get(sandbox.tenant, _checkpoint_id(id_of(sandbox))))
        if found is not None and found.state is State.PENDING:
            return None
        return await self._write(sandbox)

    async def end_due(
        self, sandbox: Sandbox, checkpoint: Checkpoint, *, due: Callable[[], Awaitable[Due]]
    ) -> bool:
        """End a sandbox whose files are written, unless its time was moved meanwhile; return whether it ended so.

        `due` is asked until the sandbox answers or has ended. Raises Problem.
        """
        wait, longest = _ASK_AGAIN
        while (answer := await due()) is Due.UNKNOWN and sandbox.live:
            await asyncio.sleep(wait)
            wait = min(wait * 2, longest)
        if answer is Due.LATER and sandbox.live:
            await self.forget(checkpoint)
            return False
        found = await answer_of(checkpoints_of(self._have).get(checkpoint.tenant, checkpoint.id))
        if found is None or found.created_at != checkpoint.created_at:
            return False  # another gateway has begun a later one, or its owner has deleted this
        return await self._end(sandbox, checkpoint)

    async def pause(self, sandbox: Sandbox) -> None:
        """Write the sandbox's files, then end it. Raises Problem, ApiError."""
        await self._end(sandbox, await self._write(sandbox))

    async def _write(self, sandbox: Sandbox) -> Checkpoint:
        have = self._have
        try:
            checkpoint = await self._begun(sandbox)
        except (Problem, ApiError) as error:
            if sandbox.live:
                raise
            if sandbox.message == PAUSED:  # by another call meanwhile
                raise already_paused(id_of(sandbox)) from error
            raise Problem(404, f"the sandbox {id_of(sandbox)} was not found: it has ended") from error
        return await written(checkpoint, have, within=_WRITTEN_WITHIN, what="the pause")

    async def _end(self, sandbox: Sandbox, checkpoint: Checkpoint) -> bool:
        """End a sandbox; return whether it had not ended before. Its files stay unless its owner ended it.

        Raises Problem, also if its owner did.
        """
        have = self._have
        deleted = have.lifecycle.ends.delete(sandbox, message=PAUSED)
        if not deleted and sandbox.verdict == SandboxVerdict.DELETED and sandbox.message != PAUSED:
            await self.forget(checkpoint)
            raise Problem(
                404, f"the sandbox {id_of(sandbox)} was not found: it was killed before its pause ended"
            )
        await have.lifecycle.deleted_everywhere(sandbox)
        return deleted

    async def _begun(self, sandbox: Sandbox) -> Checkpoint:
        """Begin to write what a connect needs. Raises Problem, ApiError."""
        have = self._have
        if sandbox.status is not Status.RUNNING:
            raise Problem(503, "the sandbox is still starting: try again", headers=[(b"retry-after", b"1")])
        spec = await spec_to_copy(sandbox, have, what="pause")
        was = msgspec.structs.replace(sandbox, id=id_of(sandbox), spec=spec)
        entry = records.entry_of(was)
        try:
            return await begin_checkpoint(
                sandbox, have, checkpoint_id=_checkpoint_id(was.id), metadata={records.ENTRY: entry}
            )
        except ApiError as error:
            if error.status != 409:
                raise
            # A 409 would say that it is paused already.
            raise Problem(503, str(error.detail), headers=[(b"retry-after", b"1")]) from error

    async def find(self, tenant: str, sandbox_id: SandboxId) -> Paused | None:
        """Return a paused sandbox of the tenant. One that has been continued since is none. Raises Problem."""
        if self._have.checkpoints is None or created_at(sandbox_id) is None:
            return None
        found = await answer_of(self._have.checkpoints.get(tenant, _checkpoint_id(sandbox_id)))
        return self._paused(found) if found is not None else None

    async def of_tenant(self, tenant: str) -> list[Paused]:
        """Return the tenant's paused sandboxes. Raises Problem."""
        if self._have.checkpoints is None:
            return []
        found = map(self._paused, await answer_of(self._have.checkpoints.of_tenant(tenant)))
        return [one for one in found if one is not None]

    async def resume(self, paused: Paused, *, timeout: int, receive: Receive, who: Tenant) -> Sandbox:
        """Begin the sandbox that continues a paused one, or return the one that another call has begun.

        Raises Problem, ApiError.
        """
        have = self._have
        try:
            sandbox = await begin_like(
                paused.sandbox.spec,
                paused.checkpoint,
                timeout=timeout,
                key=self._key(paused, who),
                continues=paused.id,
                receive=receive,
                have=have,
                who=who,
            )
            await started(sandbox, receive=receive, have=have)
        except (Problem, ApiError) as error:
            if await self._was_killed(paused.checkpoint):
                raise _killed(paused.id) from error
            raise
        return sandbox

    async def kill(self, tenant: str, sandbox_id: SandboxId) -> bool:
        """Revoke what a pause has left; return whether there was anything. Raises Problem."""
        paused = await self.find(tenant, sandbox_id)
        if paused is not None:
            await self.revoke(paused.checkpoint)
        return paused is not None

    async def revoke(self, pause: Checkpoint) -> None:
        """Delete the files of a pause, so that a gateway that is just continuing it learns of its kill. Raises Problem.

        That gateway looks at the pause once the new sandbox runs. A kill looks for the sandbox after this, so that one
        of the two ends it, in whatever order they come.
        """
        checkpoints = checkpoints_of(self._have)
        found = await answer_of(checkpoints.get(pause.tenant, pause.id))
        if found is not None and found.created_at == pause.created_at and found.state is State.DURABLE:
            await answer_of(checkpoints.revoke(found, _KILLED))

    async def left_by(self, sandbox: Sandbox) -> Checkpoint | None:
        """Return the pause that a running sandbox continues and that is there still: no caller has got the sandbox yet.

        The connect that began it was answered before it ran, or its client has left. Raises Problem.
        """
        spec, checkpoints = sandbox.spec, self._have.checkpoints
        if spec.continues is None or spec.checkpoint is None or checkpoints is None:
            return None
        found = await answer_of(checkpoints.get(sandbox.tenant, spec.checkpoint))
        # One of this sandbox itself is a pause that has just begun.
        return found if found is not None and found.sandbox_id != sandbox.id else None

    async def hand_out(self, sandbox: Sandbox, pause: Checkpoint) -> None:
        """Forget the pause that a sandbox continues, else it would come back after the sandbox's end.

        Raises Problem if the paused one was killed meanwhile, and the sandbox then ends, or if nobody can tell.
        """
        if await self._was_killed(pause):
            self._have.lifecycle.ends.delete(sandbox, message=_KILLED)
            raise _killed(id_of(sandbox))
        try:
            await self.forget(pause)
        except Problem as problem:
            _log.warning(
                "the pause that a sandbox continues is not deleted: %s",
                problem,
                extra={"sandbox": sandbox.id},
            )

    async def _was_killed(self, pause: Checkpoint) -> bool:
        """Return whether a pause that was DURABLE has been revoked. Raises Problem."""
        found = await answer_of(checkpoints_of(self._have).get(pause.tenant, pause.id))
        return found is not None and found.created_at == pause.created_at and found.error == _KILLED

    def _paused(self, checkpoint: Checkpoint) -> Paused | None:
        record = records.record_of(checkpoint)
        if record is None or checkpoint.state is not State.DURABLE:
            return None
        sandbox = record.sandbox
        if sandbox.tenant != checkpoint.tenant or _checkpoint_id(sandbox.id) != checkpoint.id:
            return None
        if self._have.directory.current(sandbox.id, sandbox.tenant) is not None:
            return None  # its pause has not ended, or a gateway that continued it died before it deleted this
        return Paused(sandbox, checkpoint, record.nonce)

    def _key(self, paused: Paused, who: Tenant) -> str:
        """Return an idempotency key whose sandbox has not ended: a start that failed can be tried again."""
        number = 0
        while True:
            key = f"e2b:{paused.id}:{paused.nonce}:{number}"
            known = self._have.directory.by_key(who.name, key)
            if known is None or known.live:
                return key
            number += 1

    async def forget(self, checkpoint: Checkpoint) -> None:
        """Delete the checkpoint of a pause, and not that of a later one. Raises Problem."""
        checkpoints = checkpoints_of(self._have)
        found = await answer_of(checkpoints.get(checkpoint.tenant, checkpoint.id))
        if found is not None and found.created_at == checkpoint.created_at:
            await answer_of(checkpoints.delete(found))


def _killed(sandbox_id: SandboxId) -> Problem:
    return Problem(404, f"the sandbox {sandbox_id} was not found: it {_KILLED}")


def _checkpoint_id(sandbox_id: SandboxId) -> str:
    return f"cp-{sandbox_id.removeprefix('sb-')}{_SUFFIX}"
