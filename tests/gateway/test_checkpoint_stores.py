"""What every store of checkpoints promises: whoever looks, whatever its gateways died in, at whatever limit."""

from __future__ import annotations

import time
from typing import Any

import pytest
from sandlot_gateway.checkpoints.errors import Deleted
from sandlot_gateway.checkpoints.rules import StoreFull

from tests.gateway.checkpoint_documents import checkpoint, failed, kept
from tests.gateway.checkpoint_stores import STORES, Stores, s3_server, stores

__all__ = ["s3_server", "stores"]

pytestmark = pytest.mark.parametrize("stores", STORES, indirect=True)


def test_another_gateway_sees_it_pending_while_it_is_written(stores: Stores) -> None:
    ours, theirs = (stores.open() for _ in range(2))
    made = checkpoint()
    part = ours.begin(made)
    part.write(b"archive")
    seen = theirs.get(made.id)
    assert seen is not None
    assert seen.state == "PENDING"
    ours.finish(made, part)
    seen = theirs.get(made.id)
    assert seen is not None
    assert (seen.state, seen.stored_bytes) == ("DURABLE", part.size)
    assert [one.id for one in theirs.all()] == [made.id]


def test_of_equal_names_the_first_complete_one_stays_the_first(stores: Stores) -> None:
    store = stores.open()
    slow, fast, late = (checkpoint(age=age) for age in (3.0, 2.0, 1.0))
    slow.name = fast.name = late.name = "build"
    parts = [store.begin(one) for one in (slow, fast, late)]
    store.finish(fast, parts[1])
    assert [one.id for one in store.named("default", "build")] == [fast.id, slow.id, late.id]
    # The gateway of `late` dies before it writes the document.
    stores.cut_short(late, parts[2])
    store.finish(slow, parts[0])
    assert next(one.id for one in store.named("default", "build")) == fast.id


def test_one_that_expires_is_gone_then_whoever_looks(stores: Stores) -> None:
    ours, theirs = (stores.open() for _ in range(2))
    over, written, later = (checkpoint() for _ in range(3))
    over.expires_at = written.expires_at = later.expires_at = time.time() + 1000
    parts = [ours.begin(one) for one in (over, written, later)]
    ours.finish(over, parts[0])
    ours.finish(later, parts[2])
    over.expires_at = written.expires_at = time.time() - 1
    stores.rewrite(over)
    stores.rewrite(written, parts[1])
    assert theirs.expire() == later.expires_at
    assert [one.id for one in theirs.all()] == [later.id]
    with pytest.raises(Deleted):
        parts[1].write(b"more")
    ours.release(written, parts[1])
    assert stores.left() == {later.id}


def test_its_writer_is_dead(stores: Stores) -> None:
    store = stores.open()
    made = checkpoint()
    part = store.begin(made)
    part.write(b"half")
    part.close()  # as the kernel does
    seen = stores.later().get(made.id)
    assert seen is not None
    assert seen.state == "FAILED"
    assert seen.error is not None
    assert store.used() == 0


def test_its_writer_died_between_the_archive_and_the_document(stores: Stores) -> None:
    store = stores.open()
    made = checkpoint()
    part = store.begin(made)
    part.write(b"archive")
    stores.cut_short(made, part)
    seen = stores.later().get(made.id)
    assert seen is not None
    assert (seen.state, seen.stored_bytes) == ("DURABLE", part.size)


def test_the_limit_counts_what_is_being_written(stores: Stores) -> None:
    store = stores.open(total_bytes=100)
    first = checkpoint()
    part = store.begin(first)
    part.write(bytes(100))
    with pytest.raises(StoreFull):
        store.begin(checkpoint())
    with pytest.raises(StoreFull):
        part.write(b"x")
    store.fail(first, "no room")
    part.discard()
    store.begin(checkpoint()).discard()


def test_a_tenant_has_so_many_and_other_tenants_are_not_concerned(stores: Stores) -> None:
    store = stores.open(tenant_count=2)
    oldest = kept(store, tenant="a", age=60)
    pending = checkpoint(tenant="a")
    part = store.begin(pending)
    with pytest.raises(
        StoreFull, match=r"tenant 'a' has 2 .* limit is 2 .*checkpoint_tenant_count.*delete"
    ) as full:
        store.begin(checkpoint(tenant="a"))
    assert f"your oldest is {oldest.id} of sandbox sb-1" in str(full.value)
    kept(store, tenant="b")
    store.delete(oldest)
    kept(store, tenant="a")
    part.discard()


def test_a_tenant_has_so_many_bytes_and_other_tenants_are_not_concerned(stores: Stores) -> None:
    store = stores.open(tenant_bytes={"a": 1000, "b": 1500, "c": None}.get)
    first = kept(store, tenant="a", size=1000)
    with pytest.raises(
        StoreFull, match=r"tenant 'a' have 1000 bytes, the limit is 1000 .*checkpoint_tenant_bytes"
    ):
        store.begin(checkpoint(tenant="a"))
    kept(store, tenant="b", size=1500)
    kept(store, tenant="c", size=2000)
    assert [store.usage().get(tenant, 0) for tenant in "abcd"] == [1000, 1500, 2000, 0]
    store.delete(first)
    kept(store, tenant="a", size=1000)


@pytest.mark.parametrize(
    "limits",
    [{"tenant_bytes": lambda tenant: 150}, {"total_bytes": 150}],
    ids=["of the tenant", "of all"],
)
def test_archives_that_are_written_beside_each_other_share_the_room(
    stores: Stores, limits: dict[str, Any]
) -> None:
    """Each was begun when nothing was written yet."""
    store = stores.open(**limits)
    parts = [store.begin(checkpoint(tenant="a")) for _ in range(3)]
    parts[0].write(bytes(100))
    with pytest.raises(StoreFull):
        parts[1].write(bytes(100))
    parts[2].write(bytes(50))
    assert store.used() == 150
    parts[0].discard()
    parts[1].write(bytes(100))  # what was given back can be used at once
    for part in parts:
        part.discard()


def test_failed_ones_count_for_nothing_and_expire(stores: Stores) -> None:
    store = stores.open(tenant_count=1, failed_keep=3600)
    made = failed(store)
    kept(store, tenant="a")
    with pytest.raises(StoreFull):
        store.begin(checkpoint(tenant="a"))
    assert store.get(made.id) is not None
    later = stores.open(failed_keep=0)
    assert later.get(made.id) is None
    assert [one.state for one in later.all()] == ["DURABLE"]
    assert made.id not in stores.left()


def test_of_failed_ones_the_newest_are_kept(stores: Stores) -> None:
    store = stores.open()
    others = failed(store, tenant="b", age=1000)
    revoked = kept(store, tenant="a", age=1000)
    store.revoke(revoked, "was killed")
    made = [failed(store, age=500 - number) for number in range(105)]
    assert store.get(others.id) is not None
    own = [one.id for one in store.all() if one.tenant == "a"]
    assert own == [revoked.id, *(one.id for one in made[-100:])]


def test_a_revoked_one_says_why_for_a_while_however_short_others_are_kept(stores: Stores) -> None:
    store = stores.open(failed_keep=0)
    made = kept(store, tenant="a")
    store.revoke(made, "was killed")
    seen = store.get(made.id)
    assert seen is not None
    assert (seen.state, seen.error) == ("FAILED", "was killed")
    assert store.used() == 0
    made.updated_at -= 130
    stores.rewrite(made)
    assert store.get(made.id) is None


def test_a_tenants_checkpoints_last_as_long_as_its_quota_says(stores: Stores) -> None:
    keep: dict[str, float] = {"a": 1000.0}
    store = stores.open(keep=keep.get)
    before = time.time()
    made, other = kept(store, tenant="a"), kept(store, tenant="b")
    pending = checkpoint(tenant="a")
    part = store.begin(pending)
    assert pending.expires_at is None
    found = {one.id: one for one in stores.open(keep=keep.get).all()}
    expires_at = found[made.id].expires_at
    assert expires_at is not None
    assert before + 1000 <= expires_at <= time.time() + 1000
    assert (found[made.id].by_quota, found[other.id].expires_at) == (True, None)
    keep["a"] = 60.0  # of those that are completed from now on
    assert store.expire() == expires_at
    made.expires_at = time.time() - 1
    stores.rewrite(made)
    assert store.expire() is None
    assert {one.id for one in store.all()} == {other.id, pending.id}
    assert made.id not in stores.left()
    part.discard()


def test_the_gateways_own_expire_as_it_says_whatever_the_quota(stores: Stores) -> None:
    store = stores.open(keep=lambda tenant: 1000.0)
    own = checkpoint()
    own.expires_at = time.time() + 5000
    store.finish(own, store.begin(own))
    seen = store.get(own.id)
    assert seen is not None
    assert (seen.expires_at, seen.by_quota) == (own.expires_at, False)
    assert own.expires_at > time.time() + 4000


def test_one_whose_writer_died_late_expires_too(stores: Stores) -> None:
    store = stores.open(keep=lambda tenant: 1000.0)
    made = checkpoint()
    part = store.begin(made)
    part.write(b"archive")
    stores.cut_short(made, part)
    seen = stores.later(keep=lambda tenant: 1000.0).get(made.id)
    assert seen is not None
    assert seen.expires_at is not None
    assert abs(seen.expires_at - time.time() - 1000) < 300


def test_an_archive_is_read_back_piece_by_piece(stores: Stores) -> None:
    store = stores.open()
    made = checkpoint()
    part = store.begin(made)
    pieces = [bytes([number]) * 3_000_000 for number in range(8)]  # several parts of an upload
    for piece in pieces:
        part.write(piece)
    assert part.size == store.used() == 24_000_000
    store.finish(made, part)
    assert made.stored_bytes == store.used() == part.size
    reading = stores.open().open(made)
    found = bytearray()
    while piece := reading.read(1 << 20):
        assert len(piece) <= 1 << 20
        found += piece
    reading.close()
    assert bytes(found) == b"".join(pieces)


def test_an_empty_archive_is_one_too(stores: Stores) -> None:
    store = stores.open()
    made = checkpoint()
    store.finish(made, store.begin(made))
    reading = store.open(made)
    assert reading.read(1 << 20) == b""
    reading.close()
    store.delete(made)
    with pytest.raises(FileNotFoundError):
        store.open(made)
