"""The documents of checkpoints in a bucket, each changed only by conditional writes: who writes last has seen the latest."""

from __future__ import annotations

import secrets
import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec

from sandlot_gateway.checkpoints.checkpoint import Checkpoint, State
from sandlot_gateway.checkpoints.s3.bucket import Bucket, Conflict, Object

_PREFIX = "documents/"
_READERS = 16  # requests at once, for documents that have changed
_MOST_KEPT = 64 << 20  # bytes of documents that this gateway remembers


class Record(msgspec.Struct, omit_defaults=True):
    """A document. `archive` names its archive, and no other's; `written`: its bytes when this was written."""

    checkpoint: Checkpoint
    archive: str
    written: int = 0
    deleted: bool = False  # the checkpoint is gone for readers, its files are not
    change: str = ""  # so that no two writes are equal, and a lost answer can be told from another's write

    @property
    def stored(self) -> int:
        """Bytes of the archive."""
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


class Records:
    """Methods raise StoreError. What is remembered counts only while the store says that its ETag is the same."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._lock = threading.Lock()
        self._kept: dict[str, Object] = {}  # by key

    def read(self, checkpoint_id: str) -> Seen | None:
        """Return a document; None if it is missing or invalid."""
        found = self._bucket.get(_key(checkpoint_id))
        return _seen(found) if found is not None else None

    def all(self) -> list[Seen]:
        """Return all documents, with a request for each 1000 and one for each that has changed since the last call."""
        listed = list(self._bucket.list(_PREFIX))
        with self._lock:
            kept = self._kept
        changed = [one.key for one in listed if one.key not in kept or kept[one.key].etag != one.etag]
        if len(changed) > 1:
            with ThreadPoolExecutor(min(_READERS, len(changed))) as threads:
                read = list(threads.map(self._bucket.get, changed))
        else:
            read = [self._bucket.get(key) for key in changed]
        fresh = {one.key: one for one in read if one is not None}
        found: list[Seen | None] = []
        remembered: dict[str, Object] = {}
        size = 0
        for one in listed:
            is_fresh = one.key in fresh
            if not is_fresh and (one.key not in kept or kept[one.key].etag != one.etag):
                continue  # deleted meanwhile
            whole = fresh[one.key] if is_fresh else kept[one.key]
            found.append(_seen(whole, age=whole.age if is_fresh else one.age))
            size += whole.size
            if size <= _MOST_KEPT:
                remembered[one.key] = whole
        with self._lock:
            self._kept = remembered
        return [one for one in found if one is not None]

    def write(self, record: Record, *, over: str | None) -> str:
        """Write a document over the one with this ETag, or where there is none; return the new ETag. Raises Conflict."""
        record.change = secrets.token_hex(8)
        key = _key(record.checkpoint.id)
        try:
            return self._bucket.write(key, msgspec.json.encode(record), over=over)
        except Conflict:
            found = self._bucket.get(key)
            seen = _seen(found) if found is not None else None
            if seen is None or seen.record.change != record.change:
                raise
            return seen.etag

    def remove(self, seen: Seen) -> None:
        """Delete a document unless it has changed, or is another by now."""
        try:
            self._bucket.delete_as(_key(seen.checkpoint.id), etag=seen.etag)
        except Conflict:
            pass  # a later checkpoint has this id


def _key(checkpoint_id: str) -> str:
    return f"{_PREFIX}{checkpoint_id}.json"


def _seen(found: Object, *, age: float | None = None) -> Seen | None:
    try:
        record = msgspec.json.decode(found.data, type=Record)
    except msgspec.DecodeError:
        return None
    return Seen(record, found.etag, found.age if age is None else age)
