"""Checkpoints without sandboxes: what a store finds after its gateway died at any step, and where there is no store."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from sandlot_gateway.checkpoints.store import Checkpoint, Store, StoreFull

from tests.gateway.conftest import running
from tests.gateway.machine import Machine


def checkpoint(store: Store) -> Checkpoint:
    now = time.time()
    return Checkpoint(
        id=store.new_id(),
        tenant="default",
        sandbox_id="sb-1",
        docker_image="host",
        disk_size_bytes=1 << 30,
        created_at=now,
        updated_at=now,
    )


def test_another_gateway_sees_it_pending_while_it_is_written(tmp_path: Path) -> None:
    ours, theirs = (Store(tmp_path, limit=1 << 20) for _ in range(2))
    made = checkpoint(ours)
    part = ours.begin(made)
    part.write(b"archive")
    seen = theirs.get(made.id)
    assert seen is not None
    assert seen.state == "PENDING"
    ours.finish(made, part)
    seen = theirs.get(made.id)
    assert seen is not None
    assert (seen.state, seen.stored_bytes) == ("DURABLE", 7)
    assert [one.id for one in theirs.all()] == [made.id]


def test_its_writer_is_dead(tmp_path: Path) -> None:
    store = Store(tmp_path, limit=1 << 20)
    made = checkpoint(store)
    part = store.begin(made)
    part.write(b"half")
    part.close()  # as the kernel does
    seen = store.get(made.id)
    assert seen is not None
    assert seen.state == "FAILED"
    assert seen.error is not None
    assert store.used() == 0


def test_its_writer_died_between_the_archive_and_the_document(tmp_path: Path) -> None:
    store = Store(tmp_path, limit=1 << 20)
    made = checkpoint(store)
    part = store.begin(made)
    part.write(b"archive")
    part.path.rename(tmp_path / f"{made.id}.tar.gz")
    part.close()
    seen = store.get(made.id)
    assert seen is not None
    assert (seen.state, seen.stored_bytes) == ("DURABLE", 7)


def test_a_delete_that_was_cut_short_is_done_again(tmp_path: Path) -> None:
    store = Store(tmp_path, limit=1 << 20)
    made = checkpoint(store)
    part = store.begin(made)
    part.write(b"archive")
    store.finish(made, part)
    made.state = "DELETING"
    store.save(made)
    assert store.all() == []
    assert list(tmp_path.iterdir()) == []


def test_damaged_documents_and_bad_ids_are_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path, limit=1 << 20)
    (tmp_path / f"cp-{'0' * 24}.json").write_text('{"id": ')
    assert store.all() == []
    assert store.get("../../etc/passwd") is None


def test_the_limit_counts_what_is_being_written(tmp_path: Path) -> None:
    store = Store(tmp_path, limit=100)
    first = checkpoint(store)
    part = store.begin(first)
    part.write(bytes(100))
    with pytest.raises(StoreFull):
        store.begin(checkpoint(store))
    with pytest.raises(StoreFull):
        part.write(b"x")
    store.fail(first, "no room")
    part.discard()
    store.begin(checkpoint(store)).discard()


async def test_without_a_directory_every_route_says_what_to_set(
    state_dir: Path, machine: Machine, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_bytes(bytes(32))
    async with running(state_dir, machine, backend="kubernetes", key_file=key) as box:
        sandbox = await box.create()
        for method, path in (
            ("POST", f"/sandbox/{sandbox['id']}/checkpoints"),
            ("GET", f"/sandbox/{sandbox['id']}/checkpoints"),
            ("DELETE", f"/sandbox/{sandbox['id']}/checkpoints"),
            ("GET", "/sandbox/checkpoints/cp-1"),
            ("DELETE", "/sandbox/checkpoints/cp-1"),
        ):
            answer = await box.client.request(method, f"/api/v1{path}")
            assert answer.status_code == 501, path
            assert "--checkpoint-dir" in answer.json()["detail"]
        answer = await box.client.post("/api/v1/sandbox", json={"checkpoint_id": "cp-1"})
        assert (answer.status_code, answer.json()["errors"][0]["param"]) == (501, "checkpoint_id")
