"""Deletes of checkpoints that a gateway still writes, in every store that two gateways share."""

from __future__ import annotations

import pytest
from sandlot_gateway.checkpoints.errors import Deleted, Occupied
from sandlot_gateway.checkpoints.rules import StoreFull

from tests.gateway.checkpoint_documents import checkpoint
from tests.gateway.checkpoint_stores import STORES, Stores, s3_server, stores

__all__ = ["s3_server", "stores"]

pytestmark = pytest.mark.parametrize("stores", STORES, indirect=True)


def test_one_that_is_written_is_deleted_at_once_and_its_files_when_that_ends(stores: Stores) -> None:
    ours, theirs = (stores.open(tenant_count=1) for _ in range(2))
    made = checkpoint(tenant="a")
    made.name = "build"
    part = ours.begin(made)
    part.write(b"half")
    theirs.delete(made)
    for store in (ours, theirs):
        assert store.get(made.id) is None
        assert store.all() == store.named("a", "build") == []
        assert [one.id for one in store.deleted()] == [made.id]
        assert store.used() == store.usage()["a"] == 4
    with pytest.raises(StoreFull, match="has 1 checkpoints"):
        theirs.begin(checkpoint(tenant="a"))
    for write in (lambda: part.write(b"more"), lambda: ours.finish(made, part)):
        with pytest.raises(Deleted):
            write()
    ours.release(made, part)
    assert stores.left() == set()
    assert ours.used() == ours.usage().get("a", 0) == 0


def test_the_writer_of_a_deleted_one_is_dead(stores: Stores) -> None:
    ours, theirs = (stores.open() for _ in range(2))
    made = checkpoint()
    part = ours.begin(made)
    theirs.delete(made)
    theirs.sweep()
    assert stores.left() == {made.id}
    part.close()  # as the kernel does
    assert stores.later().get(made.id) is None
    assert stores.left() == set()


def test_an_id_is_taken_until_the_files_of_a_deleted_one_are_gone(stores: Stores) -> None:
    ours, theirs = (stores.open() for _ in range(2))
    made = checkpoint()
    part = ours.begin(made)
    again = checkpoint()
    again.id, again.created_at = made.id, made.created_at + 1
    for _ in range(2):
        with pytest.raises(Occupied):
            theirs.begin(again)
        theirs.delete(made)
    with pytest.raises(Deleted):
        part.write(b"more")
    ours.release(made, part)
    theirs.finish(again, theirs.begin(again))
    ours.delete(made)  # by a caller that has read the earlier one
    ours.revoke(made, "late")
    assert ours.get(again.id) == again


def test_a_writer_that_gives_up_leaves_a_document_alone(stores: Stores) -> None:
    store = stores.open()
    made = checkpoint()
    part = store.begin(made)
    part.write(bytes(20_000_000))  # more than two parts of an upload
    store.fail(made, "no room")
    store.release(made, part)
    seen = stores.open().get(made.id)
    assert seen is not None
    assert (seen.state, seen.error, store.used()) == ("FAILED", "no room", 0)
    store.delete(made)
    assert stores.left() == set()
