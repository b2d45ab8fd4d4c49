"""The documents of checkpoints in a bucket, each changed only by conditional writes: who writes last has seen the latest."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Executor

import msgspec

from sandlot_gateway.checkpoints.checkpoint import Checkpoint, State
from sandlot_gateway.checkpoints.s3.bucket import Bucket, Conflict, Object

_PREFIX = "documents/"
_MOST_KEPT = 64 << 20  # bytes of documents that this gateway remembers
_RECENT = 1.0  # seconds


class Held(msgspec.Struct, frozen=True):
    """A pack of another checkpoint, and its bytes."""

    pack: str
    bytes: int


class Record(msgspec.Struct, omit_defaults=True):
    """A document. `archive` names its pack, and no other's; `written`: its bytes when this was written.

    `held`: packs of others that its archive may lie in, and at the end those that it does.
    """

    checkpoint: Checkpoint
    archive: str
    held: list[Held] = []
    written: int = 0
    deleted: bool = False  # the checkpoint is gone for readers, its files are not
    change: str = ""  # so that no two writes are equal, and a lost answer can be told from another's write

    @property
    def stored(self) -> int:
        """Bytes of the pack."""
        checkpoint = self.checkpoint
        if checkpoint.state is State.FAILED:
            return 0
        return checkpoint.stored_bytes if checkpoint.stored_bytes is not None else self.written


class Seen(msgspec.Struct, frozen=True):
    """A document as it was read. `age`: seconds since it was written, by the store's clock."""

    record: Record
    etag: str
    age: float

    @property
    def checkpoint(self) -> Checkpoint:
        return self.record.checkpoint

    def is_of(self, checkpoint: Checkpoint) -> bool:
        """Return whether it is the document of this one, not of a later one with its id."""
        return self.checkpoint.created_at == checkpoint.created_at


class Size(msgspec.Struct, frozen=True):
    """What a measurement needs of a document; `tenant` is empty where it cannot be read."""

    etag: str
    tenant: str
    packs: dict[str, int]  # bytes by name


class Records:
    """Methods raise StoreError. What is remembered counts only while the store says that its ETag is the same."""

    def __init__(self, bucket: Bucket, *, readers: Executor) -> None:
        self._bucket = bucket
        self._readers = readers  # for documents that have changed
        self._lock = threading.Lock()
        self._kept: dict[str, Object] = {}  # by key
        self._sizes: dict[str, Size] = {}  # by key
        self._recent: tuple[float, list[Object]] | None = None  # when all were read, and what they were
        self._changes = 0  # of this process

    def read(self, checkpoint_id: str, *, within: float | None = None, patient: bool = False) -> Seen | None:
        """Return a document; None if it is missing or invalid. `within` and `patient`: as those of Http.send."""
        found = self._bucket.get(_key(checkpoint_id), within=within, patient=patient)
        return _seen(found) if found is not None else None

    def all(self) -> list[Seen]:
        """Return all documents, with a request for each 1000 and one for each that has changed since the last call."""
        return _decoded(self._all())

    def recent(self) -> list[Seen]:
        """Return all documents as they were at most a second ago, with what this process has begun or ended since."""
        with self._lock:
            recent = self._recent
        if recent is None or (past := time.monotonic() - recent[0]) > _RECENT:
            return self.all()
        return _decoded([msgspec.structs.replace(one, age=one.age + past) for one in recent[1]])

    def readable(self) -> tuple[list[Seen], list[str]]:
        """Return all documents, and the ids of those that cannot be read: a newer gateway may have written them."""
        found = self._all()
        ids = [one.key.removeprefix(_PREFIX).removesuffix(".json") for one in found if _seen(one) is None]
        return _decoded(found), ids

    def sizes(self) -> list[Size]:
        """Return what all documents name, with requests as `all`, whatever the number of documents is."""
        listed = list(self._bucket.list(_PREFIX))
        with self._lock:
            known, kept = self._sizes, self._kept
        changed = [one for one in listed if one.key not in known or known[one.key].etag != one.etag]
        read = self._read([one for one in changed if not _is_same(kept.get(one.key), one)])
        fresh = {one.key: _size(one) for one in read} | {
            one.key: _size(kept[one.key]) for one in changed if _is_same(kept.get(one.key), one)
        }
        found = {one.key: size for one in listed if (size := fresh.get(one.key) or known.get(one.key))}
        with self._lock:
            self._sizes = found
        return list(found.values())

    def _all(self) -> list[Object]:
        begun, changes = time.monotonic(), self._changes
        listed = list(self._bucket.list(_PREFIX))
        with self._lock:
            kept = self._kept
        read = self._read([one for one in listed if not _is_same(kept.get(one.key), one)])
        fresh = {one.key: one for one in read}
        found: list[Object] = []
        remembered: dict[str, Object] = {}
        size = 0
        for one in listed:
            whole = fresh.get(one.key)
            if whole is None:
                whole = kept.get(one.key)
                if whole is None or whole.etag != one.etag:
                    continue  # deleted meanwhile
                whole = msgspec.structs.replace(whole, age=one.age)
            found.append(whole)
            size += whole.size
            if size <= _MOST_KEPT:
                remembered[one.key] = whole
        with self._lock:
            self._kept = remembered
            if changes == self._changes and size <= _MOST_KEPT:
                self._recent = begun, found
        return found

    def _read(self, listed: Sequence[Object]) -> list[Object]:
        if len(listed) < 2:
            read = [self._bucket.get(one.key) for one in listed]
        else:
            read = list(self._readers.map(self._bucket.get, [one.key for one in listed]))
        return [one for one in read if one is not None]

    def write(self, record: Record, *, over: str | None, within: float | None = None) -> str:
        """Write a document over the one with this ETag, or where there is none; return the new ETag. Raises Conflict.

        `within`: seconds of the only try, of a write that shows that its writer is alive.
        """
        if within is None:
            self._forget_recent()
        record.change = secrets.token_hex(8)
        key = _key(record.checkpoint.id)
        try:
            return self._bucket.write(key, msgspec.json.encode(record), over=over, within=within)
        except Conflict:
            found = self._bucket.get(key, within=within, patient=True)
            seen = _seen(found) if found is not None else None
            if seen is None or seen.record.change != record.change:
                raise
            return seen.etag
        finally:
            if within is None:
                self._forget_recent()

    def remove(self, seen: Seen) -> None:
        """Delete a document unless it has changed, or is another by now."""
        try:
            self._bucket.delete_as(_key(seen.checkpoint.id), etag=seen.etag)
        except Conflict:
            pass  # a later checkpoint has this id
        finally:
            self._forget_recent()

    def _forget_recent(self) -> None:
        with self._lock:
            self._recent = None
            self._changes += 1


def _key(checkpoint_id: str) -> str:
    return f"{_PREFIX}{checkpoint_id}.json"


def _seen(found: Object) -> Seen | None:
    try:
        record = msgspec.json.decode(found.data, type=Record)
    except msgspec.DecodeError:
        return None
    return Seen(record, found.etag, found.age)


def _decoded(found: Sequence[Object]) -> list[Seen]:
    return [seen for one in found if (seen := _seen(one)) is not None]


def _is_same(kept: Object | None, listed: Object) -> bool:
    return kept is not None and kept.etag == listed.etag


def _size(found: Object) -> Size:
    seen = _seen(found)
    if seen is None:
        return Size(found.etag, "", {})
    record = seen.record
    if seen.checkpoint.state is State.FAILED:  # it needs none, not even its own, which others may
        return Size(found.etag, seen.checkpoint.tenant, {})
    packs = {one.pack: one.bytes for one in record.held}
    return Size(found.etag, seen.checkpoint.tenant, {**packs, record.archive: record.stored})
