"""Stores checkpoints in a bucket, a JSON document and an archive each, for all gateways that have its credentials.

Whether a writer is alive says the age of its document, by the store's one clock. All changes of a document are
conditional on what its writer has seen. A document with `deleted` is of a checkpoint whose files are still there.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from sandlot_gateway.checkpoints.checkpoint import Checkpoint, State
from sandlot_gateway.checkpoints.errors import Occupied, StoreError, Trouble
from sandlot_gateway.checkpoints.interface import Writing
from sandlot_gateway.checkpoints.quota import Quota
from sandlot_gateway.checkpoints.rules import (
    STOPPED,
    StoreLimits,
    check_count,
    is_id,
    new_id,
    oldest_first,
    too_many_failed,
)
from sandlot_gateway.checkpoints.s3.archives import Archives, Receiving
from sandlot_gateway.checkpoints.s3.bucket import Bucket, Conflict
from sandlot_gateway.checkpoints.s3.http import ANSWER_WITHIN, Http
from sandlot_gateway.checkpoints.s3.names import Names
from sandlot_gateway.checkpoints.s3.probe import probe
from sandlot_gateway.checkpoints.s3.records import Record, Records, Seen
from sandlot_gateway.checkpoints.s3.signing import Credentials
from sandlot_gateway.checkpoints.s3.writing import Renewer, S3Part
from sandlot_gateway.s3_place import Place

_log = logging.getLogger(__name__)

_DEAD_AFTER = 15.0  # seconds without a write, by the store's clock
_RENEW_EVERY = 2.0  # seconds
_MEASURE_EVERY = 1.0  # seconds
_TRIES = 20  # of a change that others change too


class S3Store:
    """Methods raise StoreError for what the store answers, or does not."""

    def __init__(
        self,
        place: Place,
        *,
        limits: StoreLimits,
        credentials: Credentials | None = None,
        dead_after: float = _DEAD_AFTER,
        renew_every: float = _RENEW_EVERY,
        answer_within: float = ANSWER_WITHIN,
    ) -> None:
        http = Http(place, credentials=credentials or Credentials(), answer_within=answer_within)
        self.bucket = Bucket(http)
        self._limits = limits
        self._dead_after = dead_after
        self._renew_every = renew_every
        self._records = Records(self.bucket)
        self._archives = Archives(self.bucket)
        self._names = Names(self.bucket)
        self._renewer = Renewer(every=max(renew_every, 0.1))
        self._quota = Quota(self._sizes, limits=limits, every=_MEASURE_EVERY)
        self._checking = threading.Lock()
        self._is_checked = False

    def check(self) -> None:
        try:
            self._probe()
        except StoreError as error:
            if error.trouble is not Trouble.DOWN:
                raise
            _log.warning("no checkpoints until the store answers: %s", error)

    def close(self) -> None:
        self.bucket.http.close()

    def new_id(self) -> str:
        return new_id()

    def get(self, checkpoint_id: str) -> Checkpoint | None:
        seen = self._records.read(checkpoint_id) if is_id(checkpoint_id) else None
        found = self._settled(seen) if seen is not None else None
        return found.checkpoint if found is not None else None

    def all(self) -> list[Checkpoint]:
        return oldest_first([seen.checkpoint for seen in self._present(self._records.all())])

    def deleted(self) -> list[Checkpoint]:
        return [seen.checkpoint for seen in self._records.all() if seen.record.deleted and self._lives(seen)]

    def named(self, tenant: str, name: str) -> list[Checkpoint]:
        present = self._present(self._records.all())
        found = [one for one in present if (one.checkpoint.tenant, one.checkpoint.name) == (tenant, name)]
        order = self._names.order(tenant, name) if len(found) > 1 else []
        places = {archive: number for number, archive in enumerate(order)}
        # A writer has its place before its document says so: one that dies in between stays the first all the same.
        whole = [self._completed(one) if one.record.archive in places else one for one in found]
        last = len(places)
        kept = [one for one in whole if one is not None]
        kept.sort(key=lambda one: (places.get(one.record.archive, last), one.checkpoint.updated_at))
        return [one.checkpoint for one in kept]

    def begin(self, checkpoint: Checkpoint) -> S3Part:
        self._probe()
        self._check_limits(checkpoint.tenant)
        checkpoint.updated_at = time.time()
        record = Record(checkpoint, archive=f"{checkpoint.id}-{secrets.token_hex(8)}")
        etag = self._created(record)
        part = S3Part(
            record,
            etag=etag,
            records=self._records,
            sending=self._archives.begin(record.archive),
            admit=lambda size: self._quota.admit(checkpoint.tenant, size),
            closed=self._renewer.remove,
            renew_every=self._renew_every,
        )
        self._renewer.add(part)
        return part

    def finish(self, checkpoint: Checkpoint, part: Writing) -> None:
        assert isinstance(part, S3Part)
        part.complete()
        if checkpoint.name is not None:
            self._names.add(checkpoint.tenant, checkpoint.name, part.record.archive)
        now = time.time()
        checkpoint.stored_bytes = part.size
        self._limits.complete(checkpoint, at=now)
        checkpoint.state, checkpoint.updated_at = State.DURABLE, now
        part.settle()
        self.release(checkpoint, part)

    def release(self, checkpoint: Checkpoint, part: Writing) -> None:
        assert isinstance(part, S3Part)
        if checkpoint.state is State.PENDING:
            part.discard()
        part.close()
        if part.is_deleted:
            seen = self._records.read(checkpoint.id)
            if seen is not None and seen.record.archive == part.record.archive:
                self._forget(seen)
            else:
                self._archives.delete(part.record.archive, complete=False)

    def fail(self, checkpoint: Checkpoint, error: str) -> None:
        part = self._renewer.of(checkpoint)
        checkpoint.state, checkpoint.error, checkpoint.updated_at = State.FAILED, error, time.time()
        checkpoint.stored_bytes = None
        if part is not None and part.settle():
            part.discard()
            self._archives.delete(part.record.archive, complete=True)

    def open(self, checkpoint: Checkpoint) -> Receiving:
        seen = self._records.read(checkpoint.id)
        if seen is None or seen.record.deleted or not seen.is_of(checkpoint):
            raise FileNotFoundError(2, "the checkpoint was deleted")
        return self._archives.open(seen.record.archive, size=checkpoint.stored_bytes or 0)

    def delete(self, checkpoint: Checkpoint) -> None:
        def delete(seen: Seen) -> None:
            if not seen.record.deleted:
                seen.record.deleted = True
                seen = Seen(seen.record, self._records.write(seen.record, over=seen.etag), 0.0)
            if not self._lives(seen):
                self._forget(seen)

        self._change(checkpoint, delete)

    def update(self, checkpoint: Checkpoint) -> None:
        def update(seen: Seen) -> None:
            if not seen.record.deleted:
                seen.record.checkpoint = checkpoint
                self._records.write(seen.record, over=seen.etag)

        self._change(checkpoint, update)

    def revoke(self, checkpoint: Checkpoint, error: str) -> None:
        def revoke(seen: Seen) -> None:
            if seen.record.deleted:
                return
            checkpoint.state, checkpoint.error, checkpoint.revoked = State.FAILED, error, True
            checkpoint.updated_at = time.time()
            seen.record.checkpoint = checkpoint
            self._records.write(seen.record, over=seen.etag)  # first: nobody begins to read the archive then
            self._archives.delete(seen.record.archive, complete=True)

        self._change(checkpoint, revoke)

    def used(self) -> int:
        return self._quota.used()

    def used_by(self, tenant: str) -> int:
        return self._quota.used_by(tenant)

    def sweep(self) -> None:
        found = self._records.all()
        self._present(found)
        known = {seen.record.archive for seen in found}
        self._archives.sweep(known)
        self._names.sweep(known)

    def expire(self) -> float | None:
        return min((one.expires_at for one in self.all() if one.expires_at is not None), default=None)

    def _probe(self) -> None:
        with self._checking:
            if not self._is_checked:
                probe(self.bucket)
                self._is_checked = True

    def _change(self, checkpoint: Checkpoint, change: Callable[[Seen], None]) -> None:
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

    def _created(self, record: Record) -> str:
        """Write the document of a new checkpoint; return its ETag. Raises Occupied."""
        for is_last in (False, True):
            try:
                return self._records.write(record, over=None)
            except Conflict as error:
                seen = self._records.read(record.checkpoint.id)
                if is_last or (seen is not None and (not seen.record.deleted or self._lives(seen))):
                    raise Occupied from error
                if seen is not None:
                    self._forget(seen)
        raise AssertionError

    def _check_limits(self, tenant: str) -> None:
        """Check the tenant's limits, after removing excess FAILED checkpoints. Raises StoreFull."""
        found = [one for one in self._records.all() if one.checkpoint.tenant == tenant]
        own = oldest_first([one.checkpoint for one in self._present(found)])
        for one in too_many_failed(own):
            self.delete(one)
        deleted = sum(one.record.deleted and self._lives(one) for one in found)
        self._quota.check(tenant, hint=check_count(tenant, own, deleted=deleted, limits=self._limits))

    def _sizes(self) -> Iterator[tuple[str, int]]:
        own = self._renewer.sizes()  # which is newer than their documents
        for one in self._records.all():
            yield one.checkpoint.tenant, own.get(one.record.archive, one.record.stored)

    def _present(self, found: Iterable[Seen]) -> list[Seen]:
        """Return the documents of the checkpoints that are there, with their true states."""
        settled = (self._settled(one) for one in found)
        return [one for one in settled if one is not None]

    def _settled(self, seen: Seen) -> Seen | None:
        """Return a document with its true state, None if it is gone; one whose gateway is dead becomes FAILED."""
        if seen.record.deleted:
            if not self._lives(seen):
                self._forget(seen)
            return None
        if self._limits.is_over(seen.checkpoint):
            self.delete(seen.checkpoint)
            return None
        if seen.checkpoint.state is not State.PENDING or self._lives(seen):
            return seen
        if self._archives.size(seen.record.archive) is not None:
            return self._completed(seen)
        seen.checkpoint.state, seen.checkpoint.error = State.FAILED, STOPPED
        settled = self._written(seen)
        if settled is not None and settled.checkpoint.state is State.FAILED:
            self._archives.delete(settled.record.archive, complete=False)
        return settled

    def _completed(self, seen: Seen) -> Seen | None:
        """Return a document with its true state, of which the archive is complete: it is DURABLE."""
        checkpoint = seen.checkpoint
        size = self._archives.size(seen.record.archive) if checkpoint.state is State.PENDING else None
        if size is None:
            return seen
        if checkpoint.name is not None:
            self._names.add(checkpoint.tenant, checkpoint.name, seen.record.archive)
        checkpoint.state, checkpoint.stored_bytes = State.DURABLE, size
        self._limits.complete(checkpoint, at=time.time())
        return self._written(seen)

    def _written(self, seen: Seen) -> Seen | None:
        """Write a document that has another state now; return it, or what another gateway made of it meanwhile."""
        seen.checkpoint.updated_at = time.time()
        try:
            return Seen(seen.record, self._records.write(seen.record, over=seen.etag), 0.0)
        except Conflict:
            again = self._records.read(seen.checkpoint.id)
            return self._settled(again) if again is not None else None

    def _forget(self, seen: Seen) -> None:
        """Delete the files of a deleted checkpoint that nobody writes, its document last."""
        checkpoint = seen.checkpoint
        if checkpoint.name is not None:
            self._names.remove(checkpoint.tenant, checkpoint.name, seen.record.archive)
        self._archives.delete(seen.record.archive, complete=checkpoint.state is not State.PENDING)
        self._records.remove(seen)

    def _lives(self, seen: Seen) -> bool:
        """Return whether somebody writes it."""
        return seen.checkpoint.state is State.PENDING and seen.age < self._dead_after
