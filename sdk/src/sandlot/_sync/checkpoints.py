# This file is auto-generated from sdk/src/sandlot/_async/checkpoints.py by tools/async_to_sync.py: do not change it.
"""Checkpoints: snapshots of one sandbox's files that outlive it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sandlot._protocol import checks, documents
from sandlot._sync.client import Client, default_client
from sandlot._sync.handle import Handle
from sandlot._tasks_sync import now, sleep
from sandlot.errors import FilesRefused, ServerError, WaitTimeout
from sandlot.models import CheckpointInfo


class Checkpoints(Handle):
    """Makes, lists and deletes checkpoints; a base class of `Sandbox`."""

    def checkpoint(
        self,
        *,
        name: str | None = None,
        metadata: Mapping[str, str] | None = None,
        paths: Sequence[str] = (),
        without: Sequence[str] = (),
        wait: float = 300.0,
    ) -> CheckpointInfo:
        """Save the files of this sandbox (not its processes) beyond its end, while it keeps running.

        `find_checkpoints` finds it by its `name`, which several may have; `metadata` is returned with it.
        `paths` (absolute, at most 16) saves only what is at or below them, and `without` (patterns as of fnmatch, at
        most 64) leaves out files and directories of such names; a sandbox from it has the image's there, and no
        set-user-ID bits. A path that is a link, or has one above it, saves nothing.
        `wait` is how many seconds to wait until the checkpoint is DURABLE; 0 returns at once. Raises Conflict,
        FilesRefused (what the sandbox's code wrote cannot be saved), ServerError (the server could not write it, or has
        no space for it) or WaitTimeout.
        """
        path = f"/sandbox/{self.id}/checkpoints"
        asked: dict[str, object] = {} if name is None else {"name": name}
        if metadata:
            asked["metadata"] = checks.strings(metadata, name="metadata")
        if paths:
            asked["paths"] = checks.words(paths, name="paths")
        if without:
            asked["without"] = checks.words(without, name="without")
        document = self.client.call("POST", path, body=asked or None, safe=False, sandbox_id=self.id)
        made = documents.checkpoint_info(document)
        return written(made, wait=wait, client=self.client) if wait > 0 else made

    def checkpoints(self) -> list[CheckpointInfo]:
        """Return the checkpoints of this sandbox, oldest first."""
        document = self.client.call("GET", f"/sandbox/{self.id}/checkpoints", sandbox_id=self.id)
        return [documents.checkpoint_info(item) for item in document.get("checkpoints") or ()]

    @classmethod
    def get_checkpoint(cls, checkpoint_id: str, *, client: Client | None = None) -> CheckpointInfo:
        """Return a checkpoint of any sandbox. Raises NotFound."""
        client = client or default_client()
        path = f"/sandbox/checkpoints/{checks.path_part(checkpoint_id, name='checkpoint_id')}"
        return documents.checkpoint_info(client.call("GET", path))

    @classmethod
    def find_checkpoints(cls, name: str, *, client: Client | None = None) -> list[CheckpointInfo]:
        """Return the checkpoints with this name, of any sandbox and state, the first completed one first."""
        client = client or default_client()
        document = client.call("GET", "/sandbox/checkpoints", query={"name": name})
        return [documents.checkpoint_info(item) for item in document.get("checkpoints") or ()]

    @classmethod
    def delete_checkpoint(cls, checkpoint_id: str, *, client: Client | None = None) -> None:
        """Delete a checkpoint, also one that is still being written. Raises NotFound."""
        client = client or default_client()
        path = f"/sandbox/checkpoints/{checks.path_part(checkpoint_id, name='checkpoint_id')}"
        client.call("DELETE", path)


def written(made: CheckpointInfo, *, wait: float, client: Client) -> CheckpointInfo:
    """Wait until it is DURABLE. Raises FilesRefused, ServerError and WaitTimeout."""
    deadline = now() + wait
    delay = 0.05
    while made.state != "DURABLE":
        if made.state != "PENDING":
            kind = FilesRefused if made.failed_by_files else ServerError
            raise kind(f"checkpoint {made.id} is {made.state}: {made.error}")
        if now() + delay > deadline:
            raise WaitTimeout(
                f"checkpoint {made.id} was not written within {wait:g} s: increase wait, or poll get_checkpoint"
            )
        sleep(delay)
        delay = min(delay * 1.5, 1.0)
        made = Checkpoints.get_checkpoint(made.id, client=client)
    return made
