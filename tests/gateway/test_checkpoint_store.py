"""The directory of checkpoints: what its files alone can look like, and where there is no store."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sandlot_gateway.checkpoints.rules import StoreLimits
from sandlot_gateway.checkpoints.store import Store

from tests.gateway.checkpoint_documents import checkpoint, kept
from tests.gateway.conftest import running
from tests.gateway.machine import Machine


def test_its_writer_finishes_while_another_gateway_looks_whether_it_is_alive(tmp_path: Path) -> None:
    ours, theirs = (Store(tmp_path, limits=StoreLimits()) for _ in range(2))
    made = checkpoint()
    part = ours.begin(made)
    part.write(b"archive")
    document = tmp_path / f"{made.id}.json"
    pending = document.read_bytes()
    document.unlink()
    os.mkfifo(document)
    with ThreadPoolExecutor(1) as threads:
        seen = threads.submit(theirs.get, made.id)
        with document.open("wb") as reading:  # opens once their read has begun
            ours.finish(made, part)
            os.link(tmp_path / f"{made.id}.manifest", part.path)  # as if they had opened it before
            reading.write(pending)
        assert seen.result() == made
    assert ours.get(made.id) == made


def test_a_delete_of_an_older_gateway_that_was_cut_short_is_done_again(tmp_path: Path) -> None:
    store = Store(tmp_path, limits=StoreLimits())
    made = checkpoint()
    part = store.begin(made)
    part.write(b"archive")
    store.finish(made, part)
    made.state = "DELETING"
    store.save(made)
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
    for path in (*left, tmp_path / f"{whole.id}.manifest"):
        os.utime(path, (0, 0))
    store.sweep()
    assert not any(path.exists() for path in left)
    assert (tmp_path / f"{whole.id}.manifest").exists()


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
