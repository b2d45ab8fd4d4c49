"""The directory of checkpoints: what its files alone can look like, and where there is no store."""

from __future__ import annotations

import os
import random
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sandlot_gateway.checkpoints.checkpoint import Checkpoint, State
from sandlot_gateway.checkpoints.errors import Occupied
from sandlot_gateway.checkpoints.rules import StoreLimits
from sandlot_gateway.checkpoints.store import Store

from tests.gateway.checkpoint_documents import checkpoint, kept, later
from tests.gateway.conftest import running
from tests.gateway.machine import Machine
from tests.gateway.stepped import Stepped


def test_its_writer_finishes_while_another_gateway_looks_whether_it_is_alive(tmp_path: Path) -> None:
    looked = 0
    while True:
        ours, theirs = (Store(tmp_path, limits=StoreLimits()) for _ in range(2))
        made = checkpoint()
        part = ours.begin(made)
        part.write(b"archive")
        seen: list[Checkpoint | None] = []

        def look(checkpoint_id: str = made.id, store: Store = theirs, to: list[Any] = seen) -> None:
            to.append(store.get(checkpoint_id))

        looking = Stepped(look)
        steps = looking.run(looked)
        ours.finish(made, part)
        looking.run()
        assert seen[0] is not None
        assert seen[0].state != "FAILED"
        assert ours.get(made.id) == made
        if steps < looked:
            return
        looked += 1


def test_a_delete_of_an_older_gateway_that_was_cut_short_is_done_again(tmp_path: Path) -> None:
    store = Store(tmp_path, limits=StoreLimits())
    made = checkpoint()
    part = store.begin(made)
    part.write(b"archive")
    store.finish(made, part)
    made.state = State.DELETING
    store.update(made)
    assert store.all() == []
    assert list(tmp_path.iterdir()) == []


def test_damaged_documents_and_bad_ids_are_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path, limits=StoreLimits())
    (tmp_path / f"cp-{'0' * 24}.json").write_text('{"id": ')
    assert store.all() == []
    assert store.get("../../etc/passwd") is None


def test_what_no_document_names_is_taken_away_in_time(tmp_path: Path) -> None:
    store = Store(tmp_path, limits=StoreLimits())
    whole = kept(store, tenant="a")
    left = [tmp_path / f"cp-{'0' * 24}.part", tmp_path / f"cp-{'0' * 24}.json.00000000.new"]
    for path in left:
        path.write_bytes(b"half")
    store.sweep()
    assert all(path.exists() for path in left)
    of_none = tmp_path / f"cp-{'0' * 24}.packs.cp-{'0' * 24}-{'0' * 16}"
    of_an_earlier = tmp_path / f"{whole.id}.packs.{whole.id}-{'0' * 16}"
    for directory in (of_none, of_an_earlier):
        directory.mkdir()
        (directory / "part").write_bytes(b"half")
    store.sweep()
    assert of_none.exists()
    (own,) = tmp_path.glob(f"*/{whole.files}.pack")
    for path in (*left, of_none, of_an_earlier, own.parent):
        os.utime(path, (0, 0))
    store.sweep()
    assert not any(path.exists() for path in (*left, of_none, of_an_earlier))
    with closing(store.open(whole)) as archive:
        assert archive.read(10)


def test_an_id_whose_document_was_never_written_is_free(tmp_path: Path) -> None:
    store = Store(tmp_path, limits=StoreLimits())
    made = checkpoint()
    (tmp_path / f"{made.id}.json").touch()
    store.finish(made, store.begin(made))
    assert store.get(made.id) == made
    with pytest.raises(Occupied):
        store.begin(later(made))
    assert store.get(made.id) == made
    store.delete(made)
    assert list(tmp_path.iterdir()) == []


def test_what_a_complete_one_cannot_let_go_of_does_not_fail_it(tmp_path: Path) -> None:
    store = Store(tmp_path, limits=StoreLimits())
    made = checkpoint()
    part = store.begin(made)
    part.write(b"archive")
    stuck = part.path.with_name("stuck.pack")
    stuck.mkdir()  # no file that could be unlinked
    store.finish(made, part)
    store.fail(made, "too late")  # as by a caller for whom the finish failed
    assert (made.state, store.get(made.id)) == ("DURABLE", made)
    with closing(store.open(made)) as archive:
        assert archive.read(10) == b"archive"
    stuck.rmdir()
    store.delete(made)
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_has_two_names_in_the_directory_of_all(tmp_path: Path) -> None:
    store = Store(tmp_path, limits=StoreLimits())
    blocks = [random.randbytes(20_000) + b"\0\0\xff\xff" for _ in range(9)]
    for number in range(5):
        blocks[number] = blocks[number][::-1] + b"\0\0\xff\xff"
        made = checkpoint()
        part = store.begin(made)
        part.write(b"".join(blocks))
        store.finish(made, part)
    assert len(list(tmp_path.glob("*/*.pack"))) > 10
    assert len(list(tmp_path.iterdir())) == 10


def test_a_file_system_may_keep_the_names_of_open_files_until_they_are_closed(tmp_path: Path) -> None:
    """As NFS does, for files that the same machine has open."""
    store = Store(tmp_path, limits=StoreLimits())
    made, other = kept(store, tenant="a"), kept(store, tenant="a")
    [files] = tmp_path.glob(f"{made.id}.packs.*")
    held = files / ".nfs0001"
    held.touch()
    store.delete(made)
    assert [one.id for one in store.all()] == [other.id]
    assert store.deleted() == []
    assert list(files.iterdir()) == [held]
    held.unlink()
    os.utime(files, (0, 0))
    store.sweep()
    assert not files.exists()


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
