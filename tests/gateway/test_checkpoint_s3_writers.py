"""Writers of checkpoints in a bucket when a store stalls, loses answers or has taken them for dead."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from itertools import pairwise

import pytest
from sandlot_gateway.checkpoints.errors import StoreError
from sandlot_gateway.checkpoints.rules import StoreLimits
from sandlot_gateway.checkpoints.s3 import archives, http
from sandlot_gateway.checkpoints.s3 import store as s3_store
from sandlot_gateway.checkpoints.s3.store import S3Store
from sandlot_gateway.checkpoints.threads import StoreThreads
from sandlot_gateway.checkpoints.writers import begun
from sandlot_gateway.tasks import Tasks

from tests.gateway.checkpoint_documents import checkpoint, kept
from tests.gateway.checkpoint_stores import InBucket, bucket
from tests.s3.relay import once, relaying
from tests.s3.server import S3Server, s3_server
from tests.waiting import until, wait_until

__all__ = ["bucket", "s3_server"]

pytestmark = pytest.mark.programs


def at(bucket: InBucket, server: S3Server, *, port: int | None = None, **options: float) -> S3Store:
    place = server.place(prefix=bucket.place.prefix.strip("/"), port=port)
    return S3Store(place, limits=StoreLimits(), credentials=server.credentials, **options)


def test_a_store_that_stalls_a_request_ends_no_writer(bucket: InBucket, s3_server: S3Server) -> None:
    with relaying(s3_server.port) as relay:
        ours, theirs = at(bucket, s3_server, port=relay.port), at(bucket, s3_server)
        made = [checkpoint() for _ in range(4)]
        parts = [ours.begin(one) for one in made]
        relay.stalls = once("PUT", f"documents/{made[0].id}")
        until = time.monotonic() + 19.0  # more than a writer may be silent
        while time.monotonic() < until:
            assert {one.state for one in theirs.all()} == {"PENDING"}
            time.sleep(0.2)
        for one, part in zip(made, parts, strict=True):
            part.write(b"archive")
            ours.finish(one, part)
        assert [one.state for one in theirs.all()] == ["DURABLE"] * 4
        ours.close()
        theirs.close()


@pytest.mark.parametrize("part", ["names/", "list-type"], ids=["name", "quota"])
def test_a_writer_is_patient_with_reads_that_take_long(
    bucket: InBucket, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    monkeypatch.setattr(s3_store, "_MEASURE_EVERY", 0.0)
    with relaying(s3_server.port) as relay:
        store = at(bucket, s3_server, port=relay.port)
        made = checkpoint()
        made.name = "build"
        writing = store.begin(made)
        assert store.used() == 0
        slowed: list[bytes] = []

        def slow(head: bytes) -> bool:
            line = head.partition(b"\r\n")[0]
            if line.startswith(b"GET ") and part.encode() in line:
                slowed.append(line)
                time.sleep(0.8)  # of the store: longer than all tries of a reader
            return False

        relay.stalls = slow
        with monkeypatch.context() as hasty:  # else a reader may find the real server too slow
            hasty.setattr(http, "_READ_WITHIN", 0.4)
            hasty.setattr(http, "_READ_TRY", 0.2)
            if part == "list-type":
                wait_until(lambda: writing.write(b"archive") or slowed)  # until the quota is measured again
            store.finish(made, writing)
        assert slowed
        relay.stalls = lambda head: False
        assert [one.state for one in store.named("default", "build")] == ["DURABLE"]
        store.close()


def test_this_gateways_own_writer_is_alive_however_old_its_document_is(bucket: InBucket) -> None:
    ours = bucket.open(dead_after=0.0)
    made = checkpoint()
    part = ours.begin(made)
    seen = ours.get(made.id)
    assert seen is not None
    assert seen.state == "PENDING"
    part.write(b"archive")
    ours.finish(made, part)
    assert [one.state for one in ours.all()] == ["DURABLE"]


def test_a_failure_that_nobody_expects_ends_no_renewals(bucket: InBucket, s3_server: S3Server) -> None:
    store = at(bucket, s3_server, renew_every=0.2)
    made = checkpoint()
    part = store.begin(made)
    send, left = store.bucket.http.send, [1]

    def failing(method: str, key: str, **options: object):
        if method == "PUT" and left[0]:
            left[0] -= 1
            raise KeyError("etag")
        return send(method, key, **options)  # type: ignore[arg-type]

    store.bucket.http.send = failing  # type: ignore[method-assign]
    wait_until(lambda: left == [0])
    key = f"documents/{made.id}.json"
    before = store.bucket.get(key)
    assert before is not None

    def renewed() -> bool:
        found = store.bucket.get(key)
        return found is not None and found.etag != before.etag

    wait_until(renewed)
    store.finish(made, part)
    store.close()


def test_a_writer_that_lost_a_verdict_leaves_no_parts(bucket: InBucket, s3_server: S3Server) -> None:
    ours = at(bucket, s3_server, renew_every=600.0)  # so that it learns of the verdict last
    made = checkpoint()
    part = ours.begin(made)
    seen = bucket.later().get(made.id)
    assert seen is not None
    assert seen.state == "FAILED"
    part.write(random.randbytes(9 << 20))
    assert len(list(ours.bucket.uploads(""))) >= 1
    with pytest.raises(StoreError, match="took this one for dead"):
        ours.fail(made, "no")
    ours.release(made, part)
    assert list(ours.bucket.uploads("")) == []
    assert {one.key.partition("/")[0] for one in ours.bucket.list("")} == {"documents"}
    ours.close()


def test_a_stalled_write_of_the_packs_ends_no_writer(bucket: InBucket, s3_server: S3Server) -> None:
    with relaying(s3_server.port) as relay:
        ours = at(bucket, s3_server, port=relay.port, renew_every=5.0)
        theirs = at(bucket, s3_server, dead_after=12.0)
        data = random.randbytes(100_000)
        first = checkpoint()
        part = ours.begin(first)
        part.write(data)
        ours.finish(first, part)
        made = checkpoint()
        part = ours.begin(made)
        relay.stalls = once("PUT", f"documents/{made.id}")
        writing = threading.Thread(target=part.write, args=(data + b"\0\0\xff\xff" + data,))
        writing.start()
        while writing.is_alive():
            assert {one.state for one in theirs.all()} == {"DURABLE", "PENDING"}
            writing.join(0.2)
        ours.finish(made, part)
        assert {one.state for one in theirs.all()} == {"DURABLE"}
        ours.close()
        theirs.close()


def test_manifests_are_read_one_after_another(bucket: InBucket) -> None:
    store = bucket.open()
    for _ in range(3):
        kept(store, tenant="a", size=100_000)
    asked: list[str] = []
    once = store.bucket.http.once

    def noted(method: str, key: str, **options: object):
        asked.append(f"{method} {key.rpartition('.')[2]}")
        return once(method, key, **options)  # type: ignore[arg-type]

    store.bucket.http.once = noted  # type: ignore[method-assign]
    part = store.begin(checkpoint(tenant="a"))
    part.write(random.randbytes(5 << 20))
    reads = [number for number, one in enumerate(asked) if one == "GET pack"]
    assert len(reads) == 3
    for before, after in pairwise(reads):
        assert "PUT json" in asked[before:after]  # its pack is held before the next one is read
    part.discard()


def test_archives_of_documents_that_cannot_be_read_stay(
    bucket: InBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = bucket.open()
    made = checkpoint()
    made.name = "build"
    part = store.begin(made)
    part.write(b"archive")
    store.finish(made, part)
    lost = f"archives/cp-{'0' * 24}-0.tar.gz"
    store.bucket.put(lost, b"lost")
    key = f"documents/{made.id}.json"
    found = store.bucket.get(key)
    assert found is not None
    store.bucket.put(key, found.data.replace(b'"DURABLE"', b'"A_NEWER_STATE"'))
    monkeypatch.setattr(archives, "ABANDONED_AFTER", -1.0)
    store.sweep()
    assert store.bucket.size(lost) is None
    store.bucket.put(key, found.data)  # as the newer gateway reads it
    assert [one.id for one in store.named("default", "build")] == [made.id]
    reading = store.open(made)
    assert reading.read(100) == b"archive"
    reading.close()
    assert len(list(store.bucket.list("names/"))) == 1


def test_a_probe_whose_answers_are_lost_finds_its_own_writes(bucket: InBucket, s3_server: S3Server) -> None:
    with relaying(s3_server.port) as relay:
        store = at(bucket, s3_server, port=relay.port)
        relay.loses = once("PUT", "probes/")
        store.check()
        assert sum(one.startswith(b"PUT") for one in relay.pieces) == 5  # four, and one again
        store.close()
    assert bucket.left() == set()


async def test_a_begin_that_is_cancelled_leaves_no_writer(bucket: InBucket, s3_server: S3Server) -> None:
    store = at(bucket, s3_server, dead_after=600.0)
    await asyncio.to_thread(kept, store, tenant="a")
    made = checkpoint()
    threads, tasks = StoreThreads(), Tasks()
    send, sending = store.bucket.http.send, threading.Event()

    def noted(method: str, key: str, **options: object):
        sending.set()
        return send(method, key, **options)  # type: ignore[arg-type]

    store.bucket.http.send = noted  # type: ignore[method-assign]
    with s3_server.frozen():
        beginning = asyncio.create_task(begun(store, made, threads=threads, tasks=tasks))
        await until(sending.is_set)
        beginning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await beginning
    await tasks.close(timeout=30.0)
    found = await asyncio.to_thread(store.get, made.id)
    assert found is not None
    assert found.state == "FAILED"
    assert bucket.left()
    store.close()


def test_a_create_lists_the_documents_once(bucket: InBucket) -> None:
    store = bucket.open()
    kept(store, tenant="a")
    asked: list[str] = []
    send = store.bucket.http.send

    def counted(method: str, key: str, **options: object):
        asked.append(f"{method} {key.rpartition('/')[2]}")
        return send(method, key, **options)  # type: ignore[arg-type]

    made = checkpoint(tenant="a")
    store.all()
    store.used()
    store.bucket.http.send = counted  # type: ignore[method-assign]
    store.deleted()
    part = store.begin(made)
    assert asked == ["GET ", f"PUT {made.id}.json"]
    part.discard()
