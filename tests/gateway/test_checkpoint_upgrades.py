"""Checkpoints of gateways before packs, whose archives are whole files in the directory."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from sandlot_gateway.checkpoints.checkpoint import Checkpoint, State
from sandlot_gateway.checkpoints.errors import Deleted
from sandlot_gateway.checkpoints.rules import StoreLimits
from sandlot_gateway.checkpoints.store import Store

from tests.gateway.checkpoint_documents import checkpoint, kept, later

WHOLE = b"a whole archive"


def older(directory: Path, state: State = State.DURABLE, *, suffix: str = ".tar.gz") -> Checkpoint:
    made = checkpoint(tenant="a")
    made.state, made.name = state, "build"
    if state is State.DURABLE:
        made.stored_bytes = len(WHOLE)
    (directory / f"{made.id}{suffix}").write_bytes(WHOLE)
    (directory / f"{made.id}.json").write_bytes(msgspec.json.encode(made))
    return made


def test_it_is_listed_and_read_and_counts(tmp_path: Path) -> None:
    store = Store(tmp_path, limits=StoreLimits())
    made = older(tmp_path)
    assert store.get(made.id) == made
    assert store.all() == store.named("a", "build") == [made]
    assert store.usage() == {"a": len(WHOLE)}
    with closing(store.open(made)) as archive:
        assert archive.read(100) == WHOLE
    newer = kept(store, tenant="a", size=5000)
    assert store.used() == len(WHOLE) + 5000
    assert {one.id for one in store.all()} == {made.id, newer.id}


@pytest.mark.parametrize("how", ["delete", "expire", "revoke"])
def test_it_ends(tmp_path: Path, how: str) -> None:
    store = Store(tmp_path, limits=StoreLimits())
    made = older(tmp_path)
    if how == "delete":
        store.delete(made)
    elif how == "revoke":
        store.revoke(made, "late")
        assert [one.state for one in store.all()] == ["FAILED"]
        store.delete(made)
    else:
        made.expires_at = time.time() - 1
        store.update(made)
        assert store.expire() is None
    assert store.get(made.id) is None
    assert list(tmp_path.iterdir()) == []


def test_it_is_replaced_by_one_with_its_id(tmp_path: Path) -> None:
    store = Store(tmp_path, limits=StoreLimits())
    made = older(tmp_path)
    store.delete(made)
    again = later(made)
    store.finish(again, store.begin(again))
    store.delete(made)
    assert store.get(made.id) == again


def test_one_that_was_complete_when_its_gateway_was_killed_is_durable(tmp_path: Path) -> None:
    store = Store(tmp_path, limits=StoreLimits())
    made = older(tmp_path, State.PENDING)
    found = store.get(made.id)
    assert found is not None
    assert (found.state, found.stored_bytes) == ("DURABLE", len(WHOLE))
    with closing(store.open(found)) as archive:
        assert archive.read(100) == WHOLE


def test_one_that_was_not_complete_is_failed(tmp_path: Path) -> None:
    store = Store(tmp_path, limits=StoreLimits())
    made = older(tmp_path, State.PENDING, suffix=".part")
    assert [one.state for one in store.all()] == ["FAILED"]
    assert store.used() == 0
    store.delete(made)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", [".part", ".tar.gz"])
def test_one_that_an_older_gateway_still_writes_is_deleted_when_that_ends(
    tmp_path: Path, suffix: str
) -> None:
    store = Store(tmp_path, limits=StoreLimits())
    made = older(tmp_path, State.PENDING, suffix=suffix)
    fd = os.open(tmp_path / f"{made.id}{suffix}", os.O_WRONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    store.delete(made)
    assert [one.id for one in store.deleted()] == [made.id]
    with pytest.raises(Deleted):
        store.fail(made, "no")
    assert (tmp_path / f"{made.id}{suffix}").exists()
    (tmp_path / f"{made.id}.json").write_bytes(msgspec.json.encode(made))  # by a writer that saw no delete
    os.close(fd)
    assert store.all() == []
    assert list(tmp_path.iterdir()) == []
