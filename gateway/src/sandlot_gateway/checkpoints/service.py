"""Makes checkpoints of running sandboxes and brings them into new ones; its work goes on without a request."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from pathlib import Path

from sandlot_contract.ids import SandboxId

from sandlot_gateway.checkpoints.quota import StoreFull, StoreLimits
from sandlot_gateway.checkpoints.store import Checkpoint, Part, State, Store
from sandlot_gateway.checkpoints.transfer import Refused, fetch_layer, send_layer
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.data.pool import DialError, HttpPool, UpstreamError
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.tasks import Tasks

_log = logging.getLogger(__name__)

_AT_ONCE = 4  # each reads or writes a disk as fast as it can
_SWEEP_EVERY = 3600.0  # seconds


class Busy(Exception):
    """A checkpoint of this sandbox is being made, or it is being written."""


class NotRestorable(Exception):
    """There is no such checkpoint for this tenant (`missing`), or it is not DURABLE."""

    def __init__(self, message: str, *, missing: bool) -> None:
        super().__init__(message)
        self.missing = missing


class RestoreFailed(Exception):
    """The sandbox did not get its files and is of no use."""


class Checkpoints:
    """`max_bytes`: of the files of one checkpoint; `limits`: of all that are kept."""

    def __init__(self, directory: Path, *, pool: HttpPool, max_bytes: int, limits: StoreLimits) -> None:
        self._store = Store(directory, limits=limits)
        self._pool = pool
        self._max_bytes = max_bytes
        self._tasks = Tasks()
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._lock = asyncio.Lock()  # a check and what is done after it
        self._sweep_at = 0.0

    async def create(self, sandbox: Sandbox, instance: Instance) -> Checkpoint:
        """Begin one; it is written behind the caller's back. Raises Busy, StoreFull and OSError."""
        async with self._lock:
            await self._sweep()
            before = await self.list(sandbox.tenant, sandbox.id)
            if any(one.state is State.PENDING for one in before):
                raise Busy("a checkpoint of this sandbox is being made")
            parent = next((one for one in reversed(before) if one.state is State.DURABLE), None)
            if parent is None and sandbox.spec.checkpoint is not None:
                parent = await self.get(sandbox.tenant, sandbox.spec.checkpoint)
            now = time.time()
            team = sandbox.spec.extra.get("team_id")
            checkpoint = Checkpoint(
                id=self._store.new_id(),
                tenant=sandbox.tenant,
                sandbox_id=sandbox.id,
                docker_image=sandbox.spec.image,
                disk_size_bytes=sandbox.spec.template().disk,
                created_at=now,
                updated_at=now,
                parent_id=parent.id if parent is not None else sandbox.spec.checkpoint,
                team_id=team if isinstance(team, str) else None,
                depth=parent.depth + 1 if parent is not None else int(sandbox.spec.checkpoint is not None),
            )
            part = await asyncio.to_thread(self._store.begin, checkpoint)
        self._tasks.spawn(self._write(checkpoint, instance, part))
        return checkpoint

    async def list(self, tenant: str, sandbox_id: SandboxId) -> list[Checkpoint]:
        """Of one sandbox, oldest first, also when it has ended."""
        found = await asyncio.to_thread(self._store.all)
        return [one for one in found if one.tenant == tenant and one.sandbox_id == sandbox_id]

    async def get(self, tenant: str, checkpoint_id: str) -> Checkpoint | None:
        found = await asyncio.to_thread(self._store.get, checkpoint_id)
        return found if found is not None and found.tenant == tenant else None

    async def restorable(self, tenant: str, checkpoint_id: str) -> Checkpoint:
        """Raises NotRestorable."""
        found = await self.get(tenant, checkpoint_id)
        if found is None:
            raise NotRestorable(f"no checkpoint {checkpoint_id!r}"[:200], missing=True)
        if found.state is not State.DURABLE:
            text = f"checkpoint {found.id} is {found.state}, only a DURABLE one can be restored"
            raise NotRestorable(text, missing=False)
        return found

    async def delete(self, checkpoint: Checkpoint) -> None:
        """Raises Busy for one that is being written. A restore that has begun goes on."""
        if checkpoint.state is State.PENDING:
            raise Busy(f"checkpoint {checkpoint.id} is being made")
        await asyncio.to_thread(self._store.delete, checkpoint)

    async def restore(self, sandbox: Sandbox, instance: Instance) -> None:
        """Put its checkpoint's files into a sandbox whose claim waits for them. Raises RestoreFailed."""
        try:
            checkpoint = await self.restorable(sandbox.tenant, sandbox.spec.checkpoint or "")
            fd = await asyncio.to_thread(self._store.open, checkpoint)
            try:
                async with self._turn:
                    limit = sandbox.spec.template().disk
                    await send_layer(self._pool, instance, fd=fd, max_bytes=limit)
            finally:
                os.close(fd)
        except (NotRestorable, Refused, DialError, UpstreamError, OSError, TimeoutError) as error:
            raise RestoreFailed(f"the checkpoint could not be restored: {error}") from error

    async def close(self, *, timeout: float = 10.0) -> None:
        """What is not written by then is FAILED for whoever looks next."""
        await self._tasks.close(timeout=timeout)

    async def _sweep(self) -> None:
        if time.monotonic() >= self._sweep_at:
            await asyncio.to_thread(self._store.sweep)
            self._sweep_at = time.monotonic() + _SWEEP_EVERY

    async def _write(self, checkpoint: Checkpoint, instance: Instance, part: Part) -> None:
        why = "the gateway ended while it was written"
        try:
            async with self._turn:
                checkpoint.occupied_bytes = await fetch_layer(
                    self._pool, instance, write=part.write, max_bytes=self._max_bytes
                )
            await asyncio.to_thread(self._store.finish, checkpoint, part)
            _log.info("a checkpoint was made", extra={"sandbox": checkpoint.sandbox_id, "why": checkpoint.id})
        except asyncio.CancelledError:
            raise
        except (Refused, DialError, UpstreamError, StoreFull, OSError, TimeoutError) as error:
            why = str(error) or type(error).__name__
            await self._failed(checkpoint, why)
        finally:
            part.close()

    async def _failed(self, checkpoint: Checkpoint, why: str) -> None:
        _log.info("a checkpoint failed", extra={"sandbox": checkpoint.sandbox_id, "why": why})
        try:
            await asyncio.to_thread(self._store.fail, checkpoint, why)
        except OSError as error:
            _log.error("a checkpoint's failure could not be written: %s", error)
