"""Creates checkpoints of running sandboxes and restores them into new ones, in the background."""

from __future__ import annotations

import asyncio
import io
import logging
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from sandlot_contract.ids import SandboxId

from sandlot_gateway.checkpoints.checkpoint import Checkpoint, State
from sandlot_gateway.checkpoints.errors import Busy, Deleted, NotRestorable, Occupied, RestoreFailed
from sandlot_gateway.checkpoints.interface import CheckpointStore, OpenArchive, Writing
from sandlot_gateway.checkpoints.reading import Reading
from sandlot_gateway.checkpoints.rules import StoreFull, check_replaceable, check_restorable, new_id
from sandlot_gateway.checkpoints.shared import SharedCopies
from sandlot_gateway.checkpoints.threads import StoreThreads
from sandlot_gateway.checkpoints.transfer import EVERYTHING, Refused, Selection, send_layer
from sandlot_gateway.checkpoints.turns import in_turn
from sandlot_gateway.checkpoints.upkeep import Upkeep
from sandlot_gateway.checkpoints.writers import INTERNAL, begun, failed, release
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.data.pool import DialError, HttpPool, UpstreamError
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.tasks import Tasks

_log = logging.getLogger(__name__)

_AT_ONCE = 4  # transfers; each uses the full speed of a disk
_LOOK_EVERY = 0.1  # seconds
_GET_WITHIN = 10.0  # seconds
_LIST_WITHIN = 30.0  # seconds: a gateway that has just begun reads every document
_STOPPED_WITHIN = 1.0  # seconds for which a delete waits until this gateway has stopped writing
_STOPPED_AT_LAST = 10.0  # seconds that the next checkpoint of the sandbox waits for that
_CUT_WITHIN = 0.5  # seconds, the same for the gateway's stop


class Checkpoints:
    """The checkpoints of all sandboxes; `max_bytes` limits the files of one."""

    def __init__(
        self, store: CheckpointStore, *, pool: HttpPool, max_bytes: int, shared: SharedCopies | None = None
    ) -> None:
        """`shared`: sandboxes may mount a copy in this machine's memory instead of reading one of the gateway's own."""
        self._shared = shared or SharedCopies()
        self._store = store
        self._pool = pool
        self._tasks = Tasks()
        self._writers: dict[tuple[str, float], asyncio.Task[None]] = {}  # a later one may have the same id
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._threads = StoreThreads()
        self._reading = Reading(
            pool, threads=self._threads, turn=self._turn, max_bytes=max_bytes, shared=self._shared
        )
        self._lock = asyncio.Lock()  # makes a check and the action after it atomic
        self._upkeep = Upkeep(store, threads=self._threads)

    async def start(self) -> None:
        """Find out whether the store can be used. Raises StoreError."""
        await self._threads.run(self._store.check)

    async def create(
        self,
        sandbox: Sandbox,
        instance: Instance,
        *,
        name: str | None = None,
        metadata: dict[str, str] | None = None,
        checkpoint_id: str | None = None,
        selection: Selection = EVERYTHING,
        lasts: float | None = None,
    ) -> Checkpoint:
        """Start a checkpoint, written in the background; one with `checkpoint_id` replaces an earlier one.

        `lasts`: seconds after which it is deleted, whatever becomes of this gateway; None: it stays. Raises Busy, StoreFull
        and OSError.
        """
        await self._deleted_stop(sandbox)
        async with in_turn(self._lock):
            self._upkeep.sweep()
            if checkpoint_id is not None and (earlier := await self.get(sandbox.tenant, checkpoint_id)):
                check_replaceable(earlier, sandbox_id=sandbox.id)
                await self.delete(earlier)
            before = await self.list(sandbox.tenant, sandbox.id)
            if any(one.state is State.PENDING for one in before):
                raise Busy("a checkpoint of this sandbox is in progress; wait until it is DURABLE or FAILED")
            if await self._deleted(sandbox):
                raise Busy(
                    "a gateway has not yet stopped writing a deleted checkpoint of this sandbox; try again"
                )
            parent = next((one for one in reversed(before) if one.state is State.DURABLE), None)
            origin = sandbox.spec.checkpoint if sandbox.spec.checkpoint != checkpoint_id else None
            if parent is None and origin is not None:
                parent = await self.get(sandbox.tenant, origin)
            now = time.time()
            team = sandbox.spec.extra.get("team_id")
            checkpoint = Checkpoint(
                id=checkpoint_id or new_id(),
                tenant=sandbox.tenant,
                sandbox_id=sandbox.id,
                docker_image=sandbox.spec.image,
                disk_size_bytes=sandbox.spec.template().disk,
                created_at=now,
                updated_at=now,
                parent_id=parent.id if parent is not None else origin,
                team_id=team if isinstance(team, str) else None,
                depth=parent.depth + 1 if parent is not None else int(origin is not None),
                name=name,
                metadata=metadata or {},
                paths=selection.paths,
                without=selection.without,
                origin_id=sandbox.spec.checkpoint,
                expires_at=now + lasts if lasts is not None else None,
            )
            try:
                part = await begun(self._store, checkpoint, threads=self._threads, tasks=self._tasks)
            except Occupied as error:
                raise Busy("a gateway is writing or deleting this checkpoint; try again") from error
        shares = (
            self._shared.possible() and lasts is not None and not selection and not sandbox.spec.gpu_count
        )
        writer = self._tasks.spawn(self._write(checkpoint, instance, part, shares=shares))
        key = checkpoint.id, checkpoint.created_at
        self._writers[key] = writer
        writer.add_done_callback(lambda _: self._writers.pop(key, None))
        return checkpoint

    async def _deleted(self, sandbox: Sandbox) -> list[Checkpoint]:
        """Return the deleted checkpoints of a sandbox that are still being written."""
        found = await self._threads.read(_LIST_WITHIN, self._store.deleted)
        return [one for one in found if (one.tenant, one.sandbox_id) == (sandbox.tenant, sandbox.id)]

    async def _deleted_stop(self, sandbox: Sandbox) -> None:
        """Wait until this gateway no longer writes deleted checkpoints of a sandbox: that takes longer than their deletes wait
        where the machine is busy, and the caller was told that they are gone.
        """
        if not self._writers and self._shared.is_empty:
            return
        deleted = await self._deleted(sandbox)
        await self._let_go(deleted)
        keys = [(one.id, one.created_at) for one in deleted]
        writers = [self._writers[key] for key in keys if key in self._writers]
        if writers:
            await asyncio.wait(writers, timeout=_STOPPED_AT_LAST)

    async def list(self, tenant: str, sandbox_id: SandboxId) -> list[Checkpoint]:
        """Return the checkpoints of a sandbox, oldest first, also after its end."""
        found = await self._threads.read(_LIST_WITHIN, self._store.all)
        return [one for one in found if one.tenant == tenant and one.sandbox_id == sandbox_id]

    async def named(self, tenant: str, name: str) -> list[Checkpoint]:
        """Return the tenant's checkpoints with this name, the first completed one first."""
        return await self._threads.read(_LIST_WITHIN, self._store.named, tenant, name)

    async def of_tenant(self, tenant: str) -> list[Checkpoint]:
        """Return the checkpoints of a tenant, oldest first."""
        return [
            one for one in await self._threads.read(_LIST_WITHIN, self._store.all) if one.tenant == tenant
        ]

    async def get(self, tenant: str, checkpoint_id: str) -> Checkpoint | None:
        found = await self._threads.read(_GET_WITHIN, self._store.get, checkpoint_id)
        return found if found is not None and found.tenant == tenant else None

    async def used_by(self, tenant: str) -> int | None:
        """Return the bytes of the tenant's archives, or None if they cannot be measured now."""
        return await self._upkeep.used_by(tenant)

    async def restorable(self, tenant: str, checkpoint_id: str) -> Checkpoint:
        """Return a checkpoint that can be restored. Raises NotRestorable."""
        return check_restorable(await self.get(tenant, checkpoint_id), checkpoint_id)

    async def delete(self, checkpoint: Checkpoint) -> None:
        """Delete a checkpoint, also one that is being written; a running restore continues. Raises OSError.

        No reader finds it from now on. Another gateway that writes it stops at its next piece.
        """
        await self._shared.drop(checkpoint)  # first: its files are removed once nobody holds it
        try:
            await self._threads.run(self._store.delete, checkpoint)
        finally:  # also after a cancel, which the delete survives
            writer = self._writers.get((checkpoint.id, checkpoint.created_at))
            if writer is not None:
                writer.cancel()
                await asyncio.wait([writer], timeout=_STOPPED_WITHIN)
                if await self._shared.drop(checkpoint):  # it had just finished
                    await self._threads.run(self._store.get, checkpoint.id)

    async def _let_go(self, deleted: Iterable[Checkpoint]) -> None:
        """Let go of copies that the store or another gateway deleted: their files stay until then. Raises OSError."""
        for one in deleted:
            # A writer does so itself; the store's next reader removes the files.
            if (one.id, one.created_at) not in self._writers and await self._shared.drop(one):
                await self._threads.run(self._store.get, one.id)

    async def extend(self, checkpoint: Checkpoint, *, lasts: float) -> None:
        """Let a checkpoint that this gateway began expire in `lasts` seconds, or later if it did so before. Raises OSError."""
        checkpoint.expires_at = max(checkpoint.expires_at or 0.0, time.time() + lasts)
        if checkpoint.state is not State.PENDING:  # else its writer records that
            await self._threads.run(self._store.update, checkpoint)

    async def revoke(self, checkpoint: Checkpoint, why: str) -> None:
        """Delete the files of a checkpoint, and let its document tell for a while why: it is FAILED. Raises OSError."""
        await self._threads.run(self._store.revoke, checkpoint, why)

    async def restore(self, sandbox: Sandbox, instance: Instance) -> None:
        """Restore a sandbox's checkpoint, also one that is still being written; its claim waits. Raises RestoreFailed."""
        archive = self._archive(sandbox)
        try:
            await send_layer(
                self._pool,
                instance,
                archive,
                threads=self._threads,
                max_bytes=sandbox.spec.template().disk,
            )
        except (NotRestorable, Refused, DialError, UpstreamError, OSError, TimeoutError) as error:
            raise RestoreFailed(f"cannot restore the checkpoint: {error}") from error

    @asynccontextmanager
    async def _archive(self, sandbox: Sandbox) -> AsyncIterator[OpenArchive]:
        """Open a checkpoint's archive once it is complete and there is a turn to send it, or what tells where a copy is.

        Raises NotRestorable, OSError.
        """
        tenant, checkpoint_id = sandbox.tenant, sandbox.spec.checkpoint or ""
        await self.settled(tenant, checkpoint_id)
        checkpoint = await self.restorable(tenant, checkpoint_id)
        if checkpoint.shared:
            document = self._shared.document(checkpoint)
            if document is None or sandbox.spec.gpu_count:
                why = "is for sandboxes without GPUs" if sandbox.spec.gpu_count else "was deleted"
                raise NotRestorable(f"checkpoint {checkpoint.id} {why}", missing=True)
            yield io.BytesIO(document)
            return
        async with self._turn:  # first: an open archive has a list of all its chunks, and files
            try:
                archive = await self._threads.whole(self._store.open, checkpoint)
            except FileNotFoundError:
                raise NotRestorable(f"checkpoint {checkpoint.id} was deleted", missing=True) from None
            try:
                yield archive
            finally:
                archive.close()

    async def settled(self, tenant: str, checkpoint_id: str) -> Checkpoint | None:
        """Return a checkpoint once it is DURABLE or FAILED; None if it was deleted."""
        while (found := await self.get(tenant, checkpoint_id)) and found.state is State.PENDING:
            writer = self._writers.get((found.id, found.created_at))
            if writer is not None:
                await asyncio.wait([writer])
            else:  # of another gateway
                await asyncio.sleep(_LOOK_EVERY)
        return found

    async def expire(self) -> float | None:
        """Delete what has expired; return when the next checkpoint does. Raises OSError."""
        soonest = await self._threads.run(self._store.expire)
        if not self._shared.is_empty:
            await self._let_go(await self._threads.run(self._store.deleted))
        return soonest

    async def close(self, *, timeout: float = 10.0) -> int:
        """Wait for checkpoints being written; after `timeout` seconds the rest become FAILED. Return their number."""
        # A thread on a stalled volume goes on until the process ends, which `__main__` does without it two seconds after
        # the stop; that releases the lock of its file.
        cut = await self._tasks.close(timeout=timeout, end_within=_CUT_WITHIN)
        await self._upkeep.close()
        self._shared.close()
        self._store.close()
        return cut

    async def _write(
        self, checkpoint: Checkpoint, instance: Instance, part: Writing, *, shares: bool
    ) -> None:
        try:
            fetched = await self._reading.read(checkpoint, instance, part, shares=shares)
            checkpoint.entries, checkpoint.occupied_bytes = fetched.entries, fetched.bytes
            await self._threads.whole(self._store.finish, checkpoint, part)
            _log.info("checkpoint written", extra={"sandbox": checkpoint.sandbox_id, "why": checkpoint.id})
        except (Deleted, Refused, DialError, UpstreamError, StoreFull, OSError, TimeoutError) as error:
            checkpoint.failed_by_files = isinstance(error, Refused) and error.by_files
            await failed(self._store, checkpoint, str(error) or type(error).__name__, threads=self._threads)
        except Exception:
            _log.exception(
                "a checkpoint failed in an unexpected way", extra={"sandbox": checkpoint.sandbox_id}
            )
            await failed(self._store, checkpoint, INTERNAL, threads=self._threads)
        finally:
            try:
                if checkpoint.state is not State.DURABLE:
                    await self._shared.drop(checkpoint)
            finally:  # also when a second cancel cuts the drop off: else the part stays open
                await self._threads.whole(release, self._store, checkpoint, part)
