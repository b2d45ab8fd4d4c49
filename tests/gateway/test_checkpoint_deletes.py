"""Deletes of checkpoints that a gateway still writes, in a store that two gateways share."""

from __future__ import annotations

from pathlib import Path

import pytest
from sandlot_gateway.checkpoints.checkpoint import State
from sandlot_gateway.checkpoints.deletions import Deleted
from sandlot_gateway.checkpoints.quota import StoreFull, StoreLimits
from sandlot_gateway.checkpoints.store import Occupied, Store

from tests.gateway.checkpoint_documents import checkpoint


def test_one_that_is_written_is_deleted_at_once_and_its_files_when_that_ends(tmp_path: Path) -> None:
    ours, theirs = (Store(tmp_path, limits=StoreLimits(tenant_count=1)) for _ in range(2))
    made = checkpoint(ours, tenant="a")
    made.name = "build"
    part = ours.begin(made)
    part.write(b"half")
    theirs.delete(made)
    for store in (ours, theirs):
        assert store.get(made.id) is None
        assert store.all() == store.named("a", "build") == []
        assert [one.id for one in store.deleted()] == [made.id]
        assert store.used() == store.used_by("a") == 4
    with pytest.raises(StoreFull, match="has 1 checkpoints"):
        theirs.begin(checkpoint(theirs, tenant="a"))
    for write in (lambda: part.write(b"more"), lambda: ours.finish(made, part)):
        with pytest.raises(Deleted):
            write()
    ours.release(made, part)
    assert list(tmp_path.iterdir()) == []
    assert ours.used() == ours.used_by("a") == 0


def test_the_writer_of_a_deleted_one_is_dead(tmp_path: Path) -> None:
    ours, theirs = (Store(tmp_path, limits=StoreLimits()) for _ in range(2))
    made = checkpoint(ours)
    part = ours.begin(made)
    theirs.delete(made)
    theirs.sweep()
    assert (tmp_path / f"{made.id}.deleted").exists()
    part.close()  # as the kernel does
    assert theirs.get(made.id) is None
    assert list(tmp_path.iterdir()) == []


def test_a_delete_at_the_moment_in_which_the_writer_ends(tmp_path: Path) -> None:
    ours, theirs = (Store(tmp_path, limits=StoreLimits()) for _ in range(2))
    made = checkpoint(ours)
    part = ours.begin(made)
    part.write(b"archive")
    theirs.delete(made)
    # The writer found no delete a moment before.
    part.path.rename(tmp_path / f"{made.id}.tar.gz")
    made.state = State.DURABLE
    ours.save(made)
    assert theirs.get(made.id) is None
    assert theirs.all() == []
    assert ours.used() == 7
    ours.release(made, part)
    assert list(tmp_path.iterdir()) == []


def test_what_another_gateway_writes_by_now_is_not_discarded(tmp_path: Path) -> None:
    store = Store(tmp_path, limits=StoreLimits())
    made = checkpoint(store)
    part = store.begin(made)
    part.path.unlink()  # as a delete does
    theirs = store.begin(made)
    part.discard()
    store.finish(made, theirs)
    assert store.get(made.id) == made


def test_an_id_is_free_again_once_the_deleted_files_are_gone(tmp_path: Path) -> None:
    ours, theirs = (Store(tmp_path, limits=StoreLimits()) for _ in range(2))
    made = checkpoint(ours)
    part = ours.begin(made)
    again = checkpoint(theirs)
    again.id = made.id
    with pytest.raises(Occupied):
        theirs.begin(again)
    theirs.delete(made)
    with pytest.raises(Occupied):
        theirs.begin(again)
    part.path.rename(tmp_path / f"{made.id}.tar.gz")  # as a writer that found no delete a moment before
    with pytest.raises(Occupied):
        theirs.begin(again)
    ours.release(made, part)
    theirs.revoke(made, "late")
    assert list(tmp_path.iterdir()) == []
    again.created_at += 1
    theirs.finish(again, theirs.begin(again))
    ours.delete(made)  # by a caller that has read the earlier one
    ours.revoke(made, "late")
    assert ours.get(again.id) == again
