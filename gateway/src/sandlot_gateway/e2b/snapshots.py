"""E2B's snapshots, which are checkpoints here: the files of a sandbox, from which others can be created."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sandlot_gateway.audit.call import note
from sandlot_gateway.checkpoints.checkpoint import Checkpoint, State
from sandlot_gateway.control.checkpoint_models import METADATA_MAX
from sandlot_gateway.control.checkpoints import begin_checkpoint, checkpoints_of
from sandlot_gateway.control.services import Services
from sandlot_gateway.keys import Tenant
from sandlot_gateway.sandboxes import Sandbox, Spec

from .copies import written
from .failures import Problem
from .forks import is_forks
from .pauses import is_pause
from .requests import read
from .saved import KEY, OF_SNAPSHOT, Saved

PREFIX = "cp-"  # of the ids of checkpoints
_OF = "e2b.of"  # of the metadata: the id that the clients of its sandbox have, if that continues a paused one
_WRITTEN_WITHIN = 50.0  # seconds: the SDK gives up after 60


class NewSnapshot(msgspec.Struct):
    name: str | None = None
    memory: bool | None = None


class Snapshots:
    def __init__(self, have: Services) -> None:
        self._have = have

    async def create(self, sandbox: Sandbox, body: bytes) -> dict[str, Any]:
        """Write the sandbox's files; return the snapshot once it can be used. Raises Problem, ApiError."""
        asked = read(body, NewSnapshot)
        if asked.memory:
            raise Problem(400, "memory: not supported here: take a snapshot with mode='filesystem'")
        if asked.name:
            raise Problem(400, "name: not supported here: leave it out, and use the snapshot's id")
        first = sandbox.spec.continues
        metadata: dict[str, str] = {} if first is None else {_OF: first}
        if sandbox.spec.e2b is not None:
            metadata |= _saved(sandbox.spec).metadata(OF_SNAPSHOT)
        if (size := sum(len(value.encode()) for value in metadata.values())) > METADATA_MAX:
            text = f"envs: a snapshot keeps those of its sandbox, which have {size} bytes; the limit is {METADATA_MAX}"
            raise Problem(400, f"{text}: create it with smaller envs, and write the rest to a file")
        begun = await begin_checkpoint(sandbox, self._have, metadata=metadata or None)
        note(id=begun.id)
        return _document(await written(begun, self._have, within=_WRITTEN_WITHIN, what="the snapshot"))

    async def list(self, who: Tenant, query: Mapping[str, list[str]]) -> list[dict[str, Any]]:
        """Return the tenant's snapshots that can be used, or those of one sandbox, oldest first."""
        found = await checkpoints_of(self._have).of_tenant(who.name)
        wanted = query.get("sandboxID", [""])[0]
        return [
            _document(one)
            for one in found
            # A template is deleted by its name, a pause by its sandbox.
            if one.state is State.DURABLE
            and wanted in ("", one.metadata.get(_OF, one.sandbox_id))
            and KEY not in one.metadata
            and not is_pause(one)
            and not is_forks(one)
        ]

    async def delete(self, who: Tenant, snapshot_id: str) -> None:
        """Delete a snapshot; sandboxes made from it stay. Raises Problem, ApiError."""
        checkpoints = checkpoints_of(self._have)
        found = await checkpoints.get(who.name, snapshot_id)
        if found is None:
            raise Problem(404, f"the snapshot {snapshot_id[:100]!r} was not found")
        await checkpoints.delete(found)


def _saved(spec: Spec) -> Saved:
    """Return what a sandbox has besides files. Its size is left out: the next one's is its create's or pool's."""
    start = spec.start_command if isinstance(spec.start_command, str) else None
    return Saved(env=spec.env, workdir=spec.workdir, user=spec.user, start=start, ready=spec.ready_command)


def _document(checkpoint: Checkpoint) -> dict[str, Any]:
    return {"snapshotID": checkpoint.id, "names": [checkpoint.id]}
