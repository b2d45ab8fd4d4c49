"""Stores checkpoints in a bucket, a JSON document and a pack each, for all gateways that have its credentials.

Whether a writer is alive says the age of its document, by the store's one clock. All changes of a document are
conditional on what its writer has seen. A document with `deleted` is of a checkpoint whose files are still there.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from sandlot_gateway.checkpoints.checkpoint import Checkpoint, State
from sandlot_gateway.checkpoints.errors import Occupied, StoreError, Trouble
from sandlot_gateway.checkpoints.interface import OpenArchive, Writing
from sandlot_gateway.checkpoints.quota import Quota
from sandlot_gateway.checkpoints.rules import (
    StoreLimits,
    check_count,
    is_id,
    oldest_first,
    pack_name,
    soonest_expiry,
    too_many_failed,
)
from sandlot_gateway.checkpoints.s3.archives import Archives
from sandlot_gateway.checkpoints.s3.bucket import Bucket, Conflict
from sandlot_gateway.checkpoints.s3.http import ANSWER_WITHIN, Http
from sandlot_gateway.checkpoints.s3.names import Names
from sandlot_gateway.checkpoints.s3.packs import Packs
from sandlot_gateway.checkpoints.s3.probe import probe
from sandlot_gateway.checkpoints.s3.records import Record, Records, Seen
from sandlot_gateway.checkpoints.s3.signing import Credentials
from sandlot_gateway.checkpoints.s3.states import States
from sandlot_gateway.checkpoints.s3.times import DEAD_AFTER, RENEW_EVERY
from sandlot_gateway.checkpoints.s3.writing import Renewer, S3Part
from sandlot_gateway.s3_place import Place

_log = logging.getLogger(__name__)

_MEASURE_EVERY = 1.0  # seconds
_READERS = 16  # requests at once, of all calls that read much


class S3Store:
    """Methods raise StoreError for what the store answers, or does not."""

    def __init__(
        self,
        place: Place,
        *,
        limits: StoreLimits,
        credentials: Credentials | None = None,
        dead_after: float = DEAD_AFTER,
        renew_every: float = RENEW_EVERY,
        answer_within: float = ANSWER_WITHIN,
    ) -> None:
        http = Http(place, credentials=credentials or Credentials(), answer_within=answer_within)
        self.bucket = Bucket(http)
        self._limits = limits
        self._renew_every = renew_every
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="checkpoint-reader")
        self._records = Records(self.bucket, readers=self._readers)
        self._archives = Archives(self.bucket)
        self._packs = Packs(self.bucket, self._archives)
        self._names = Names(self.bucket, readers=self._readers)
        self._renewer = Renewer(every=max(renew_every, 0.1))
        self._states = States(
            self._records,
            self._archives,
            self._packs,
            self._names,
            limits=limits,
            dead_after=dead_after,
            is_ours=self._renewer.writes,
        )
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
        self._readers.shutdown(wait=False, cancel_futures=True)
        self.bucket.http.close()

    def get(self, checkpoint_id: str) -> Checkpoint | None:
        seen = self._records.read(checkpoint_id) if is_id(checkpoint_id) else None
        found = self._states.settled(seen) if seen is not None else None
        return found.checkpoint if found is not None else None

    def all(self) -> list[Checkpoint]:
        return oldest_first([seen.checkpoint for seen in self._states.present(self._records.all())])

    def deleted(self) -> list[Checkpoint]:
        return [
            seen.checkpoint
            for seen in self._records.all()
            if seen.record.deleted and self._states.lives(seen)
        ]

    def named(self, tenant: str, name: str) -> list[Checkpoint]:
        present = self._states.present(self._records.all())
        found = [one for one in present if (one.checkpoint.tenant, one.checkpoint.name) == (tenant, name)]
        order = self._names.order(tenant, name) if len(found) > 1 else []
        places = {archive: number for number, archive in enumerate(order)}
        # A writer has its place before its document says so: one that dies in between stays the first all the same.
        whole = [self._states.completed(one) if one.record.archive in places else one for one in found]
        last = len(places)
        kept = [one for one in whole if one is not None]
        kept.sort(key=lambda one: (places.get(one.record.archive, last), one.checkpoint.updated_at))
        return [one.checkpoint for one in kept]

    def begin(self, checkpoint: Checkpoint) -> S3Part:
        self._probe()
        own = self._check_limits(checkpoint.tenant)
        checkpoint.updated_at, checkpoint.packed = time.time(), True
        record = Record(checkpoint, archive=pack_name(checkpoint.id))
        etag = self._created(record)
        part = S3Part(
            record,
            etag=etag,
            records=self._records,
            sending=self._archives.begin(record.archive),
            admit=lambda size: self._quota.admit(checkpoint.tenant, size),
            give_back=lambda size: self._quota.give_back(checkpoint.tenant, size),
            known=lambda part: self._packs.hold(part, own),
            closed=self._renewer.remove,
            renew_every=self._renew_every,
        )
        self._renewer.add(part)
        return part

    def finish(self, checkpoint: Checkpoint, part: Writing) -> None:
        assert isinstance(part, S3Part)
        unused = part.complete()
        if checkpoint.name is not None:
            self._names.add(checkpoint.tenant, checkpoint.name, part.record.archive)
        now = time.time()
        part.stop_renewing()
        checkpoint.stored_bytes = part.size
        self._limits.complete(checkpoint, at=now)
        checkpoint.state, checkpoint.updated_at = State.DURABLE, now
        part.record.held = [one for one in part.record.held if one not in unused]
        is_written = part.settle()
        self.release(checkpoint, part)
        if is_written:  # else the document still names them
            with contextlib.suppress(StoreError):  # they stay longer than they must, until the sweep
                self._packs.let_go(part.record.archive, unused)

    def release(self, checkpoint: Checkpoint, part: Writing) -> None:
        assert isinstance(part, S3Part)
        part.stop_renewing()
        if checkpoint.state is State.PENDING:
            part.discard()
        part.close()
        if part.is_lost:
            part.clean(lambda: self._lost(checkpoint, part))

    def _lost(self, checkpoint: Checkpoint, part: S3Part) -> None:
        """Remove what a writer has written whose document is not its own any more."""
        seen = self._records.read(checkpoint.id) if part.is_deleted else None
        if seen is not None and seen.record.archive == part.record.archive:
            self._states.forget(seen)
        # Also what it wrote after the verdict, which nobody else knows.
        self._packs.leave(part.record, complete=False)

    def fail(self, checkpoint: Checkpoint, error: str) -> None:
        part = self._renewer.of(checkpoint)
        if part is not None:
            part.stop_renewing()
        checkpoint.state, checkpoint.error, checkpoint.updated_at = State.FAILED, error, time.time()
        checkpoint.stored_bytes = None
        if part is None:
            return
        is_durable = False
        try:
            is_durable = not part.settle()
        finally:
            if not is_durable:
                with contextlib.suppress(StoreError):  # `release` and the sweep repeat it
                    part.discard()
        if not is_durable:
            self._packs.leave(part.record, complete=True)

    def open(self, checkpoint: Checkpoint) -> OpenArchive:
        seen = self._records.read(checkpoint.id)
        if seen is None or seen.record.deleted or not seen.is_of(checkpoint):
            raise FileNotFoundError(2, "the checkpoint was deleted")
        return self._packs.open(seen.record)

    def delete(self, checkpoint: Checkpoint) -> None:
        self._states.delete(checkpoint)

    def update(self, checkpoint: Checkpoint) -> None:
        def update(seen: Seen) -> None:
            if not seen.record.deleted:
                seen.record.checkpoint = checkpoint
                self._records.write(seen.record, over=seen.etag)

        self._states.change(checkpoint, update)

    def revoke(self, checkpoint: Checkpoint, error: str) -> None:
        def revoke(seen: Seen) -> None:
            if seen.record.deleted:
                return
            checkpoint.state, checkpoint.error, checkpoint.revoked = State.FAILED, error, True
            checkpoint.updated_at = time.time()
            seen.record.checkpoint = checkpoint
            self._records.write(seen.record, over=seen.etag)  # first: nobody begins to read the archive then
            self._packs.leave(seen.record, complete=True)

        self._states.change(checkpoint, revoke)

    def used(self) -> int:
        return self._quota.used()

    def usage(self) -> Mapping[str, int]:
        return self._quota.usage()

    def sweep(self) -> None:
        orders, held = self._names.all(), self._packs.listed()
        found, unreadable = self._records.readable()
        self._states.present(found)
        known = {seen.record.archive for seen in found}
        named = known.union(one.pack for seen in found for one in seen.record.held)
        left = self._packs.sweep(held, named=named, ids=unreadable)
        self._archives.sweep(named | left, ids=unreadable)
        if not unreadable:  # else one of them may be in its order
            self._names.sweep(orders, known=known)

    def expire(self) -> float | None:
        return soonest_expiry(self.all())

    def _probe(self) -> None:
        with self._checking:
            if not self._is_checked:
                probe(self.bucket)
                self._is_checked = True

    def _created(self, record: Record) -> str:
        """Write the document of a new checkpoint; return its ETag. Raises Occupied."""
        for is_last in (False, True):
            try:
                return self._records.write(record, over=None)
            except Conflict as error:
                seen = self._records.read(record.checkpoint.id)
                if is_last or (seen is not None and (not seen.record.deleted or self._states.lives(seen))):
                    raise Occupied from error
                if seen is not None:
                    self._states.forget(seen)
        raise AssertionError

    def _check_limits(self, tenant: str) -> list[Seen]:
        """Return the tenant's checkpoints once excess FAILED ones are removed. Raises StoreFull at one of its limits."""
        found = [one for one in self._records.recent() if one.checkpoint.tenant == tenant]
        present = self._states.present(found)
        own = oldest_first([one.checkpoint for one in present])
        for one in too_many_failed(own):
            self.delete(one)
        deleted = sum(one.record.deleted and self._states.lives(one) for one in found)
        self._quota.check(tenant, hint=check_count(tenant, own, deleted=deleted, limits=self._limits))
        return present

    def _sizes(self) -> Iterator[tuple[str, int]]:
        found = {
            pack: (one.tenant, size) for one in self._records.sizes() for pack, size in one.packs.items()
        }
        own = self._renewer.sizes()  # which is newer than their documents
        for pack, (tenant, size) in found.items():
            yield tenant, own.get(pack, size)
