"""Deletes of checkpoints that a gateway still writes, in a directory that two gateways share."""

from __future__ import annotations

from pathlib import Path

import pytest
from sandlot_gateway.checkpoints.checkpoint import State
from sandlot_gateway.checkpoints.errors import Occupied
from sandlot_gateway.checkpoints.rules import StoreLimits
from sandlot_gateway.checkpoints.store import Store

from tests.gateway.checkpoint_documents import checkpoint


def test_a_delete_at_the_moment_in_which_the_writer_ends(tmp_path: Path) -> None:
    ours, theirs = (Store(tmp_path, limits=StoreLimits()) for _ in range(2))
    made = checkpoint()
    part = ours.begin(made)
    part.write(b"archive")
    theirs.delete(made)
    # The writer found no delete a moment before.
    part.path.rename(part.path.with_name("manifest"))
    made.state = State.DURABLE
    ours.update(made)
    assert theirs.get(made.id) is None
    assert theirs.all() == []
    assert ours.used() == 7
    ours.release(made, part)
    assert list(tmp_path.iterdir()) == []


def test_what_another_gateway_writes_by_now_is_not_discarded(tmp_path: Path) -> None:
    store = Store(tmp_path, limits=StoreLimits())
    made = checkpoint()
    part = store.begin(made)
    (tmp_path / f"{made.id}.json").unlink()  # as a delete does
    again = checkpoint()
    again.id = made.id
    theirs = store.begin(again)
    part.discard()
    store.finish(again, theirs)
    assert store.get(made.id) == again


def test_an_id_is_free_again_once_the_deleted_files_are_gone(tmp_path: Path) -> None:
    ours, theirs = (Store(tmp_path, limits=StoreLimits()) for _ in range(2))
    made = checkpoint()
    part = ours.begin(made)
    again = checkpoint()
    again.id = made.id
    with pytest.raises(Occupied):
        theirs.begin(again)
    theirs.delete(made)
    with pytest.raises(Occupied):
        theirs.begin(again)
    part.path.rename(part.path.with_name("manifest"))  # as a writer that found no delete a moment before
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
