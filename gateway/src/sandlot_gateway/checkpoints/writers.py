"""Begins, fails and releases the writers of a store: a caller that is cancelled leaves none behind, which would live for ever."""

from __future__ import annotations

import asyncio
import logging

from sandlot_gateway.checkpoints.checkpoint import Checkpoint
from sandlot_gateway.checkpoints.errors import Deleted, Occupied
from sandlot_gateway.checkpoints.interface import CheckpointStore, Writing
from sandlot_gateway.checkpoints.rules import StoreFull
from sandlot_gateway.checkpoints.threads import StoreThreads
from sandlot_gateway.tasks import Tasks

_log = logging.getLogger(__name__)

INTERNAL = "an internal error of the gateway, whose log has it: try again, or tell the operator"


async def begun(
    store: CheckpointStore, checkpoint: Checkpoint, *, threads: StoreThreads, tasks: Tasks
) -> Writing:
    """Begin to write; after a cancel one of `tasks` releases what has begun. Raises Occupied, StoreFull and OSError."""
    work = threads.begun(store.begin, checkpoint)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        # Not awaited here: the store may not answer, and the caller ends.
        tasks.spawn(_given_up(store, checkpoint, work, threads=threads))
        raise


async def failed(store: CheckpointStore, checkpoint: Checkpoint, why: str, *, threads: StoreThreads) -> None:
    """Record that a checkpoint failed; a failure to do so is only logged."""
    _log.info("checkpoint failed", extra={"sandbox": checkpoint.sandbox_id, "why": why})
    try:
        await threads.whole(store.fail, checkpoint, why)
    except Deleted:
        return  # nobody asks why
    except OSError as error:
        _log.error("cannot record the failure of a checkpoint: %s", error)


def release(store: CheckpointStore, checkpoint: Checkpoint, part: Writing) -> None:
    """Stop writing; what cannot be removed now is only logged. Blocks."""
    try:
        store.release(checkpoint, part)
    except OSError as error:  # the next reader repeats it
        _log.error("cannot remove the files of a deleted checkpoint: %s", error)


async def _given_up(
    store: CheckpointStore, checkpoint: Checkpoint, work: asyncio.Future[Writing], *, threads: StoreThreads
) -> None:
    try:
        part = await work
    except (Occupied, StoreFull, OSError):
        return
    await threads.whole(release, store, checkpoint, part)
