"""Finds the true state of checkpoints in a bucket: those of dead writers end, what has expired or was deleted goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from sandlot_gateway.checkpoints.checkpoint import Checkpoint, State
from sandlot_gateway.checkpoints.errors import StoreError
from sandlot_gateway.checkpoints.rules import STOPPED, StoreLimits
from sandlot_gateway.checkpoints.s3.archives import Archives
from sandlot_gateway.checkpoints.s3.bucket import Conflict
from sandlot_gateway.checkpoints.s3.names import Names
from sandlot_gateway.checkpoints.s3.packs import Packs
from sandlot_gateway.checkpoints.s3.records import Records, Seen

_TRIES = 20  # of a change that others change too


class States:
    """A writer whose document is older than `dead_after` seconds is dead. Methods raise StoreError."""

    def __init__(
        self,
        records: Records,
        archives: Archives,
        packs: Packs,
        names: Names,
        *,
        limits: StoreLimits,
        dead_after: float,
        is_ours: Callable[[str], bool],
    ) -> None:
        """`is_ours`: whether this process writes an archive."""
        self._records = records
        self._archives = archives
        self._packs = packs
        self._names = names
        self._limits = limits
        self._dead_after = dead_after
        self._is_ours = is_ours

    def change(self, checkpoint: Checkpoint, change: Callable[[Seen], None]) -> None:
        """Change a checkpoint's document, not that of a later one with its id; again if it changes at that moment."""
        for _ in range(_TRIES):
            seen = self._records.read(checkpoint.id)
            if seen is None or not seen.is_of(checkpoint):
                return None
            try:
                return change(seen)
            except Conflict:
                continue
        raise StoreError(f"checkpoint {checkpoint.id} changes all the time: try again")

    def delete(self, checkpoint: Checkpoint) -> None:
        """Delete a checkpoint; the files of one that somebody writes go when that ends."""

        def delete(seen: Seen) -> None:
            if not seen.record.deleted:
                seen.record.deleted = True
                seen = Seen(seen.record, self._records.write(seen.record, over=seen.etag), 0.0)
            if not self.lives(seen):
                self.forget(seen)

        self.change(checkpoint, delete)

    def present(self, found: Iterable[Seen]) -> list[Seen]:
        """Return the documents of the checkpoints that are there, with their true states."""
        settled = (self.settled(one) for one in found)
        return [one for one in settled if one is not None]

    def settled(self, seen: Seen) -> Seen | None:
        """Return a document with its true state, None if it is gone; one whose gateway is dead becomes FAILED."""
        if seen.record.deleted:
            if not self.lives(seen):
                self.forget(seen)
            return None
        if self._limits.is_over(seen.checkpoint):
            self.delete(seen.checkpoint)
            return None
        if seen.checkpoint.state is not State.PENDING or self.lives(seen):
            return seen
        if self._size(seen) is not None:
            return self.completed(seen)
        seen.checkpoint.state, seen.checkpoint.error = State.FAILED, STOPPED
        settled = self._written(seen)
        if settled is not None and settled.checkpoint.state is State.FAILED:
            self._packs.leave(settled.record, complete=False)
        return settled

    def completed(self, seen: Seen) -> Seen | None:
        """Return a document with its true state, of which the archive is complete: it is DURABLE."""
        checkpoint = seen.checkpoint
        size = self._size(seen) if checkpoint.state is State.PENDING else None
        if size is None:
            return seen
        if checkpoint.name is not None:
            self._names.add(checkpoint.tenant, checkpoint.name, seen.record.archive)
        checkpoint.state, checkpoint.stored_bytes = State.DURABLE, size
        self._limits.complete(checkpoint, at=time.time())
        return self._written(seen)

    def _size(self, seen: Seen) -> int | None:
        return self._archives.size(seen.record.archive, packed=seen.checkpoint.packed)

    def _written(self, seen: Seen) -> Seen | None:
        """Write a document that has another state now; return it, or what another gateway made of it meanwhile."""
        seen.checkpoint.updated_at = time.time()
        try:
            return Seen(seen.record, self._records.write(seen.record, over=seen.etag), 0.0)
        except Conflict:
            again = self._records.read(seen.checkpoint.id)
            return self.settled(again) if again is not None else None

    def forget(self, seen: Seen) -> None:
        """Delete the files of a deleted checkpoint that nobody writes, its document last."""
        checkpoint = seen.checkpoint
        if checkpoint.name is not None:
            self._names.remove(checkpoint.tenant, checkpoint.name, seen.record.archive)
        self._packs.leave(seen.record, complete=checkpoint.state is not State.PENDING)
        self._records.remove(seen)

    def lives(self, seen: Seen) -> bool:
        """Return whether somebody writes it."""
        if seen.checkpoint.state is not State.PENDING:
            return False
        return seen.age < self._dead_after or self._is_ours(seen.record.archive)
