"""The store of checkpoints in a bucket of a real S3 server: writers that are slow, cut off or taken for dead."""

from __future__ import annotations

import contextlib
import random
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest
from sandlot_gateway.checkpoints.errors import StoreError, Trouble
from sandlot_gateway.checkpoints.rules import StoreLimits
from sandlot_gateway.checkpoints.s3 import archives
from sandlot_gateway.checkpoints.s3.store import S3Store

from tests.gateway.checkpoint_documents import MANIFEST, checkpoint, kept
from tests.gateway.checkpoint_stores import InBucket, bucket
from tests.s3.http_servers import cutting
from tests.s3.server import S3Server, s3_server
from tests.waiting import wait_until

__all__ = ["bucket", "s3_server"]

pytestmark = pytest.mark.programs


def test_a_real_server_is_good_enough(bucket: InBucket) -> None:
    bucket.open().check()
    assert bucket.left() == set()


def test_a_writer_without_a_byte_lives_until_it_dies(s3_server: S3Server) -> None:
    bucket = InBucket(s3_server)
    # A loaded machine may keep the thread that renews from running for seconds.
    ours = S3Store(
        bucket.place, limits=StoreLimits(), credentials=s3_server.credentials, renew_every=0.5, dead_after=9.0
    )
    theirs = bucket.open(dead_after=9.0)
    made = checkpoint()
    part = ours.begin(made)
    until = time.monotonic() + 11.0
    while time.monotonic() < until:
        seen = theirs.get(made.id)
        assert seen is not None
        assert seen.state == "PENDING"
        time.sleep(0.2)
    part.close()  # as the kernel does
    hasty = bucket.open(dead_after=3.0)

    def failed() -> bool:
        seen = hasty.get(made.id)
        assert seen is not None
        return seen.state == "FAILED"

    wait_until(failed)
    bucket.close()
    ours.close()


def test_a_writer_that_was_taken_for_dead_is_told_and_leaves_nothing(bucket: InBucket) -> None:
    ours = bucket.open()
    made = checkpoint()
    part = ours.begin(made)
    part.write(random.randbytes(9 << 20))
    seen = bucket.later().get(made.id)
    assert seen is not None
    assert seen.state == "FAILED"
    with pytest.raises(StoreError, match=r"took this one for dead|upload is gone"):
        part.write(random.randbytes(9 << 20))
    with pytest.raises(StoreError):
        ours.finish(made, part)
    with pytest.raises(StoreError):
        ours.fail(made, "no")
    ours.release(made, part)
    assert [one.state for one in ours.all()] == ["FAILED"]
    assert {one.key.partition("/")[0] for one in ours.bucket.list("")} == {"documents"}
    assert list(ours.bucket.uploads("")) == []


def test_a_reader_that_finds_it_complete_is_faster_than_its_writer(bucket: InBucket) -> None:
    ours = bucket.open()
    made = checkpoint()
    made.name = "build"
    part = ours.begin(made)
    part.write(b"archive")
    part.complete()
    seen = bucket.later().get(made.id)
    assert seen is not None
    assert seen.state == "DURABLE"
    ours.finish(made, part)
    found = bucket.open().get(made.id)
    assert found is not None
    assert (found.state, found.stored_bytes) == ("DURABLE", part.size)


def test_all_gateways_agree_on_the_first_of_a_name(bucket: InBucket) -> None:
    views = [bucket.open() for _ in range(4)]
    made = [checkpoint() for store in views]
    for one in made:
        one.name = "build"
    parts = [store.begin(one) for store, one in zip(views, made, strict=True)]

    def finish(number: int) -> str:
        views[number].finish(made[number], parts[number])
        return views[number].named("default", "build")[0].id

    with ThreadPoolExecutor(4) as threads:
        firsts = set(threads.map(finish, range(4)))
    assert len(firsts) == 1
    order = [one.id for one in views[0].named("default", "build")]
    assert order[0] in firsts
    assert all([one.id for one in store.named("default", "build")] == order for store in views)
    views[0].delete(next(one for one in made if one.id == order[0]))
    assert [one.id for one in views[1].named("default", "build")] == order[1:]


def test_a_read_goes_on_where_it_was_cut_off(s3_server: S3Server, bucket: InBucket) -> None:
    made = kept(bucket.open(), tenant="a", size=20_000_000)
    with cutting(s3_server.port, after=6_000_000, cuts=3) as relay:
        place = s3_server.place(prefix=bucket.place.prefix.strip("/"), port=relay.port)
        store = S3Store(place, limits=StoreLimits(), credentials=s3_server.credentials)
        reading = store.open(made)
        size = 0
        while piece := reading.read(1 << 20):
            size += len(piece)
        reading.close()
        assert (size, relay.cuts_left) == (20_000_000 - MANIFEST, 0)
        store.close()


def test_parts_that_are_cut_off_are_sent_again(s3_server: S3Server, bucket: InBucket) -> None:
    with cutting(s3_server.port, after=700, cuts=4) as relay:
        place = s3_server.place(prefix=bucket.place.prefix.strip("/"), port=relay.port)
        store = S3Store(place, limits=StoreLimits(), credentials=s3_server.credentials, renew_every=0.0)
        store.check()
        made = kept(store, tenant="a", size=20_000_000)
        assert relay.cuts_left < 4
        store.close()
    seen = bucket.open().get(made.id)
    assert seen is not None
    assert (seen.state, seen.stored_bytes) == ("DURABLE", made.stored_bytes)
    assert (made.stored_bytes or 0) >= 20_000_000


def test_memory_is_bounded_whatever_the_size(bucket: InBucket) -> None:
    store = bucket.open()
    made = checkpoint()
    tracemalloc.start()
    try:
        part = store.begin(made)
        for _ in range(96):
            part.write(random.randbytes(1 << 20))
        store.finish(made, part)
        reading = store.open(made)
        while reading.read(1 << 20):
            pass
        reading.close()
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 40 << 20


def test_what_no_document_names_is_taken_away_in_time(
    bucket: InBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = bucket.open()
    whole = kept(store, tenant="a")
    lost = f"chunks/cp-{'0' * 24}-0.pack"
    store.bucket.put(lost, b"lost")
    upload = store.bucket.begin_upload(lost)
    store.bucket.put_part(lost, upload, number=1, data=bytes(5 << 20))
    named = [checkpoint(tenant="a") for _ in range(2)]
    for one in named:
        one.name = "build"
        store.finish(one, store.begin(one))
    store.bucket.delete(f"documents/{named[0].id}.json")
    writing = checkpoint(tenant="a")
    part = store.begin(writing)
    part.write(random.randbytes(9 << 20))
    store.sweep()
    (order,) = store.bucket.list("names/")
    found = store.bucket.get(order.key)
    assert found is not None
    assert [one.id.encode() in found.data for one in named] == [False, True]
    assert store.bucket.size(lost) == 4
    monkeypatch.setattr(archives, "ABANDONED_AFTER", -1.0)
    store.sweep()
    assert store.bucket.size(lost) is None
    assert [one.key for one in store.bucket.uploads("")] == [f"chunks/{part.record.archive}.pack"]
    store.finish(writing, part)
    assert {one.id for one in store.all()} == {whole.id, named[1].id, writing.id}


def test_a_server_that_is_away_or_frozen_is_told_and_the_writer_goes_on_when_it_is_back(
    s3_server: S3Server,
) -> None:
    bucket = InBucket(s3_server)
    store = S3Store(
        bucket.place,
        limits=StoreLimits(),
        credentials=s3_server.credentials,
        renew_every=0.0,
        answer_within=1.0,
    )
    made = checkpoint()
    part = store.begin(made)
    for trouble in (s3_server.away, s3_server.frozen):
        with trouble():
            with pytest.raises(StoreError, match="does not answer") as failed:
                store.get(made.id)
            assert failed.value.trouble is Trouble.DOWN
            with contextlib.suppress(StoreError):  # it may be in memory still
                part.write(b"some")
    store.bucket.http._answer_within = 20.0  # it is back, and may be slow
    part.write(b"more")
    store.finish(made, part)
    seen = bucket.open().get(made.id)
    assert seen is not None
    assert (seen.state, seen.stored_bytes) == ("DURABLE", part.size)
    store.close()
    bucket.close()


def test_documents_are_read_once_while_they_are_the_same(bucket: InBucket) -> None:
    made = [kept(bucket.open(), tenant="a") for _ in range(3)]
    store = bucket.open()
    assert len(store.all()) == 3
    asked: list[str] = []
    send = store.bucket.http.send

    def counted(method: str, key: str, **options: object):
        asked.append(f"{method} {key.rpartition('/')[2]}")
        return send(method, key, **options)  # type: ignore[arg-type]

    store.bucket.http.send = counted  # type: ignore[method-assign]
    assert len(store.all()) == 3
    assert asked == ["GET "]  # one list
    asked.clear()
    bucket.open().revoke(made[1], "was killed")
    assert [one.state for one in store.all()] == ["DURABLE", "FAILED", "DURABLE"]
    assert asked == ["GET ", f"GET {made[1].id}.json"]
