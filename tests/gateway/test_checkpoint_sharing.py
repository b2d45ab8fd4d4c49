"""What checkpoints of a tenant have in common is stored once, for as long as one of them needs it: in every store."""

from __future__ import annotations

import random
from contextlib import closing

import pytest
from sandlot_gateway.checkpoints.checkpoint import Checkpoint
from sandlot_gateway.checkpoints.errors import Damaged
from sandlot_gateway.checkpoints.interface import CheckpointStore
from sandlot_gateway.checkpoints.manifest import MAX_PACKS

from tests.gateway.checkpoint_documents import checkpoint
from tests.gateway.checkpoint_stores import STORES, Stores, s3_server, stores

__all__ = ["s3_server", "stores"]

pytestmark = pytest.mark.parametrize("stores", STORES, indirect=True)

BLOCK = 20_000
END = b"\0\0\xff\xff"  # of what a sidecar has compressed on its own


def block() -> bytes:
    return random.randbytes(BLOCK - len(END)) + END


def saved(
    store: CheckpointStore, blocks: list[bytes], *, tenant: str = "a", id: str | None = None
) -> Checkpoint:
    made = checkpoint(tenant=tenant)
    made.id = id or made.id
    part = store.begin(made)
    data = b"".join(blocks)
    for at in range(0, len(data), 70_000):
        part.write(data[at : at + 70_000])
    store.finish(made, part)
    return made


def read(store: CheckpointStore, made: Checkpoint) -> bytes:
    with closing(store.open(made)) as archive:
        return b"".join(iter(lambda: archive.read(33_333), b""))


def test_siblings_add_what_differs(stores: Stores) -> None:
    store = stores.open()
    blocks = [block() for _ in range(100)]
    first = saved(store, blocks)
    assert (first.stored_bytes or 0) > 100 * BLOCK
    others: list[tuple[Checkpoint, bytes]] = []
    for number in range(4):
        own = [*blocks[: number * 9], block(), block(), *blocks[number * 9 + 1 :]]
        made = saved(store, own)
        assert (made.stored_bytes or 0) < 6 * BLOCK
        others.append((made, b"".join(own)))
    assert read(stores.open(), first) == b"".join(blocks)
    for made, whole in others:
        assert read(stores.open(), made) == whole
    assert store.used() == sum(one.stored_bytes or 0 for one in store.all())
    assert dict(store.usage())["a"] == store.used()


def test_what_one_archive_has_twice_is_stored_once(stores: Stores) -> None:
    store = stores.open()
    one = block()
    made = saved(store, [one] * 50)
    assert (made.stored_bytes or 0) < 3 * BLOCK + 50 * 50
    assert read(store, made) == one * 50


def test_a_pack_stays_while_another_checkpoint_needs_it(stores: Stores) -> None:
    store = stores.open()
    blocks = [block() for _ in range(30)]
    first = saved(store, blocks)
    second = saved(stores.open(), [*blocks[:-1], block()])
    third = saved(stores.open(), [*blocks[:-1], block()])
    store.delete(first)
    assert store.get(first.id) is None
    assert store.used() > 30 * BLOCK  # and its tenant is charged for it
    assert store.usage()["a"] == store.used()
    store.delete(third)
    assert read(store, second)[: 29 * BLOCK] == b"".join(blocks[:-1])
    store.delete(second)
    assert store.used() == 0
    assert stores.left() == set()


def test_tenants_share_nothing(stores: Stores) -> None:
    store = stores.open()
    blocks = [block() for _ in range(20)]
    mine, theirs = (saved(store, blocks, tenant=tenant) for tenant in "ab")
    assert mine.stored_bytes == theirs.stored_bytes
    assert store.usage() == {"a": mine.stored_bytes, "b": theirs.stored_bytes}


def test_a_limit_counts_what_is_added(stores: Stores) -> None:
    store = stores.open(tenant_bytes={"a": 45 * BLOCK}.get)
    blocks = [block() for _ in range(30)]
    first = saved(store, blocks)
    for _ in range(3):
        saved(store, [*blocks[:-1], block()])
    assert store.used() < (first.stored_bytes or 0) + 15 * BLOCK


def test_a_writer_that_dies_keeps_nothing_of_others(stores: Stores) -> None:
    store = stores.open()
    blocks = [block() for _ in range(30)]
    first = saved(store, blocks)
    made = checkpoint(tenant="a")
    part = store.begin(made)
    part.write(b"".join([*blocks[:20], block(), block()]))
    part.close()  # as the kernel does
    store.delete(first)
    seen = stores.later().get(made.id)
    assert seen is not None
    assert seen.state == "FAILED"
    assert store.used() == 0


def test_one_whose_writer_died_late_is_read_and_deleted(stores: Stores) -> None:
    store = stores.open()
    blocks = [block() for _ in range(30)]
    first = saved(store, blocks)
    made = checkpoint(tenant="a")
    part = store.begin(made)
    part.write(b"".join(blocks) + b"more")
    stores.cut_short(made, part)
    late = stores.later()
    late.delete(first)
    found = late.get(made.id)
    assert found is not None
    assert (found.state, found.stored_bytes) == ("DURABLE", part.size)
    assert read(late, found) == b"".join(blocks) + b"more"
    late.delete(found)
    assert stores.left() == set()


def test_a_failed_one_and_a_revoked_one_keep_nothing(stores: Stores) -> None:
    store = stores.open()
    blocks = [block() for _ in range(30)]
    first, second = saved(store, blocks), saved(store, blocks)
    made = checkpoint(tenant="a")
    part = store.begin(made)
    part.write(b"".join(blocks))
    store.fail(made, "no")
    store.release(made, part)
    store.revoke(second, "late")
    store.delete(first)
    assert store.used() == 0


@pytest.mark.parametrize("digit", ["0", "f"], ids=["listed first", "listed last"])
def test_a_pack_of_a_revoked_one_counts_while_another_needs_it(stores: Stores, digit: str) -> None:
    store = stores.open()
    blocks = [block() for _ in range(30)]
    first = saved(store, blocks, id="cp-" + digit * 24)
    second = saved(store, blocks)
    store.revoke(first, "late")
    assert store.used() > 30 * BLOCK
    assert store.usage()["a"] == store.used()
    store.delete(second)
    assert store.used() == 0


def test_a_read_has_as_many_bytes_as_it_asks_for(stores: Stores) -> None:
    store = stores.open()
    made = saved(store, [block() for _ in range(100)])
    with closing(store.open(made)) as archive:
        sizes = [len(archive.read(1 << 20)) for _ in range(3)]
    assert sizes == [1 << 20, 100 * BLOCK - (1 << 20), 0]


def test_what_is_far_from_where_it_was_is_read_back(stores: Stores) -> None:
    store = stores.open()
    blocks = [block() for _ in range(500)]
    mixed = [blocks[number * 7 % 500] for number in range(1000)]
    first = saved(store, [*blocks, *mixed])
    second = saved(store, mixed[::-1])
    assert read(store, first) == b"".join([*blocks, *mixed])
    assert read(store, second) == b"".join(mixed[::-1])


def test_a_long_line_of_checkpoints_lies_in_so_many_packs(stores: Stores) -> None:
    store = stores.open()
    blocks = [block() for _ in range(60)]
    made = saved(store, blocks)
    for number in range(MAX_PACKS + 6):
        blocks[number] = block()
        made = saved(store, blocks)
        assert (made.stored_bytes or 0) < 8 * BLOCK
    assert read(store, made) == b"".join(blocks)


@pytest.mark.parametrize("how", ["changed", "cut", "gone"])
def test_damage_is_told(stores: Stores, how: str) -> None:
    store = stores.open()
    blocks = [block() for _ in range(30)]
    first = saved(store, blocks)
    second = saved(store, [*blocks[:-1], block()])
    stores.damage(first, how)
    with pytest.raises((Damaged, FileNotFoundError), match=r"damaged|deleted"):
        read(store, second)
    store.delete(first)
    store.delete(second)
    assert stores.left() == set()
