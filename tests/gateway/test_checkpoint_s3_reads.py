"""What restores ask of a bucket, and what gateways of before packs and newer ones leave each other there."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing

import msgspec
import pytest
from sandlot_gateway.checkpoints.checkpoint import Checkpoint, State
from sandlot_gateway.checkpoints.interface import CheckpointStore
from sandlot_gateway.checkpoints.rules import StoreLimits
from sandlot_gateway.checkpoints.s3 import packs
from sandlot_gateway.checkpoints.s3.records import Record
from sandlot_gateway.checkpoints.s3.store import S3Store

from tests.gateway.checkpoint_documents import checkpoint
from tests.gateway.checkpoint_stores import InBucket, bucket
from tests.s3.relay import relaying
from tests.s3.server import S3Server, s3_server

__all__ = ["bucket", "s3_server"]

pytestmark = pytest.mark.programs

END = b"\0\0\xff\xff"


def block(size: int = 9000) -> bytes:
    return random.randbytes(size - len(END)) + END


def saved(store: CheckpointStore, data: bytes) -> Checkpoint:
    made = checkpoint(tenant="a")
    part = store.begin(made)
    for at in range(0, len(data), 1 << 20):
        part.write(data[at : at + (1 << 20)])
    store.finish(made, part)
    return made


def read(store: CheckpointStore, made: Checkpoint) -> bytes:
    with closing(store.open(made)) as archive:
        return b"".join(iter(lambda: archive.read(1 << 20), b""))


def repeated() -> bytes:
    """One chunk between all others."""
    one = block()
    return b"".join(block() + one for _ in range(1000))


def mixed() -> bytes:
    """Chunks that come again far from where they were."""
    blocks = [block() for _ in range(1000)]
    again = random.sample(blocks, len(blocks))
    return b"".join([*blocks, *again])


def copied() -> bytes:
    """Large files that come again, each by itself."""
    files = [block(1 << 20) for _ in range(12)]
    return b"".join([*files, *reversed(files)])


@pytest.mark.parametrize("kind", [repeated, mixed, copied])
def test_a_restore_needs_few_requests(
    s3_server: S3Server, bucket: InBucket, kind: Callable[[], bytes]
) -> None:
    data = kind()
    made = saved(bucket.open(), data)
    with relaying(s3_server.port) as relay:
        place = s3_server.place(prefix=bucket.place.prefix.strip("/"), port=relay.port)
        store = S3Store(place, limits=StoreLimits(), credentials=s3_server.credentials)
        assert read(store, made) == data
        requests = sum(one.startswith(b"GET") for one in relay.pieces)
        assert requests <= 70 + len(data) // (1 << 20)
        store.close()


def rewritten(bucket: InBucket, made: Checkpoint, *, state: State) -> None:
    """Write a document as a gateway does that knows no packs."""
    key = f"documents/{made.id}.json"
    store = bucket.open().bucket
    found = store.get(key)
    assert found is not None
    record = msgspec.json.decode(found.data, type=Record)
    record.held, record.checkpoint.packed, record.checkpoint.state = [], False, state
    store.put(key, msgspec.json.encode(record))


def test_a_whole_archive_of_before_is_listed_restored_and_deleted(bucket: InBucket) -> None:
    store = bucket.open()
    made, data = checkpoint(tenant="a"), random.randbytes(3 << 20)
    made.state, made.stored_bytes = State.DURABLE, len(data)
    record = Record(made, archive=f"{made.id}-0123456789abcdef")
    store.bucket.put(f"archives/{record.archive}.tar.gz", data)
    store.bucket.put(f"documents/{made.id}.json", msgspec.json.encode(record))
    assert store.all() == [made]
    assert store.usage() == {"a": len(data)}
    store.sweep()
    other = saved(store, data)
    assert (other.stored_bytes or 0) > len(data)  # nothing of it is shared
    assert read(store, made) == data
    store.delete(made)
    assert store.all() == [other]
    store.delete(other)
    assert bucket.left() == set()


def test_a_gateway_of_before_deletes_no_pack(bucket: InBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    store = bucket.open()
    blocks = [block() for _ in range(30)]
    more = [*blocks, block()]
    first, second = saved(store, b"".join(blocks)), saved(store, b"".join(more))
    # It deletes there what a document names, or none.
    assert list(store.bucket.list("archives/")) == []
    rewritten(bucket, first, state=State.FAILED)
    store.bucket.delete(f"documents/{first.id}.json")
    store.sweep()
    assert read(store, second) == b"".join(more)
    rewritten(bucket, second, state=State.FAILED)
    store.delete(second)
    monkeypatch.setattr(packs, "ABANDONED_AFTER", -1.0)
    store.sweep()
    assert bucket.left() == set()
