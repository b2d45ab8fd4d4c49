"""Reads a sandbox's files for a checkpoint: into an archive, or for its own machine into memory."""

from __future__ import annotations

import asyncio
import logging
import time

from sandlot_gateway.checkpoints.checkpoint import Checkpoint
from sandlot_gateway.checkpoints.interface import Writing
from sandlot_gateway.checkpoints.memory import Memory, room_of
from sandlot_gateway.checkpoints.part import Part
from sandlot_gateway.checkpoints.shared import SharedCopies, copied, measured
from sandlot_gateway.checkpoints.threads import StoreThreads
from sandlot_gateway.checkpoints.transfer import Fetched, Refused, Selection, fetch_layer
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.data.pool import HttpPool

_log = logging.getLogger(__name__)

_FREED_WITHIN = 30.0  # seconds in which a sidecar ends an archive that its reader has left
_LOOK_EVERY = 0.1  # seconds


class Reading:
    """`turn` bounds how many read at once, `max_bytes` the files of one checkpoint."""

    def __init__(
        self,
        pool: HttpPool,
        *,
        threads: StoreThreads,
        turn: asyncio.Semaphore,
        max_bytes: int,
        shared: SharedCopies,
    ) -> None:
        self._threads = threads
        self._pool = pool
        self._turn = turn
        self._max_bytes = max_bytes
        self._shared = shared
        self._memory = Memory()

    async def read(
        self, checkpoint: Checkpoint, instance: Instance, part: Writing, *, shares: bool
    ) -> Fetched:
        """Read the files into `part`, or with `shares` into a copy that is kept beside it where the sidecar can.

        Raises Refused, DialError, UpstreamError, TimeoutError, StoreFull, Deleted and OSError.
        """
        until: float | None = None
        while True:
            try:
                async with self._turn:
                    if shares:
                        return await self._copy(checkpoint, instance, part)
                    return await self._archive(checkpoint, instance, part)
            except Refused as error:
                if shares and not (error.by_files or error.busy):
                    _log.info("the copy is an archive: %s", error, extra={"sandbox": checkpoint.sandbox_id})
                    shares = False
                    continue
                if until is None:
                    until = time.monotonic() + _FREED_WITHIN  # not before: others may have the turn for long
                if not error.busy or time.monotonic() > until:
                    raise
            await asyncio.sleep(_LOOK_EVERY)

    async def _copy(self, checkpoint: Checkpoint, instance: Instance, part: Writing) -> Fetched:
        assert isinstance(part, Part)  # of a directory: no other store has shared copies
        found = await measured(self._pool, instance, max_bytes=self._max_bytes)
        room = room_of(found)
        with self._memory.reserved(room):
            await self._threads.whole(part.reserve, found.bytes)  # before memory is taken for it
            try:
                copy = await copied(self._pool, instance, entries=found.entries, room=room)
            except Refused:
                await self._threads.whole(part.reserve, 0)
                raise
        await self._shared.keep(checkpoint, copy, part)
        checkpoint.shared = True
        await self._threads.whole(part.reserve, copy.has.bytes)
        return copy.has

    async def _archive(self, checkpoint: Checkpoint, instance: Instance, part: Writing) -> Fetched:
        return await fetch_layer(
            self._pool,
            instance,
            write=part.write,
            threads=self._threads,
            max_bytes=self._max_bytes,
            selection=Selection(checkpoint.paths, checkpoint.without),
            compressed=checkpoint.expires_at is None,  # to compress takes longer than to read it again
        )
