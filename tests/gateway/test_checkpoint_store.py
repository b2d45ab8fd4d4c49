"""Checkpoints without sandboxes: what a store finds after its gateway died at any step, and where there is no store."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from sandlot_gateway.checkpoints.checkpoint import Checkpoint
from sandlot_gateway.checkpoints.deletions import Deleted
from sandlot_gateway.checkpoints.quota import StoreFull, StoreLimits
from sandlot_gateway.checkpoints.store import Store

from tests.gateway.checkpoint_documents import checkpoint
from tests.gateway.conftest import running
from tests.gateway.machine import Machine


def test_another_gateway_sees_it_pending_while_it_is_written(tmp_path: Path) -> None:
    ours, theirs = (Store(tmp_path, limits=StoreLimits()) for _ in range(2))
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


def test_of_equal_names_the_first_complete_one_stays_the_first(tmp_path: Path) -> None:
    store = Store(tmp_path, limits=StoreLimits())
    slow, fast, late = (checkpoint(store, age=age) for age in (3.0, 2.0, 1.0))
    slow.name = fast.name = late.name = "build"
    parts = [store.begin(one) for one in (slow, fast, late)]
    store.finish(fast, parts[1])
    assert [one.id for one in store.named("default", "build")] == [fast.id, slow.id, late.id]
    # The gateway of `late` dies before it writes the document.
    parts[2].path.rename(tmp_path / f"{late.id}.tar.gz")
    parts[2].close()
    store.finish(slow, parts[0])
    assert next(one.id for one in store.named("default", "build")) == fast.id


def test_one_that_expires_is_gone_then_whoever_looks(tmp_path: Path) -> None:
    ours, theirs = (Store(tmp_path, limits=StoreLimits()) for _ in range(2))
    over, written, later = (checkpoint(ours) for _ in range(3))
    over.expires_at = written.expires_at = later.expires_at = time.time() + 1000
    parts = [ours.begin(one) for one in (over, written, later)]
    ours.finish(over, parts[0])
    ours.finish(later, parts[2])
    for one in (over, written):
        one.expires_at = time.time() - 1
        ours.save(one)
    assert theirs.expire() == later.expires_at
    assert [one.id for one in theirs.all()] == [later.id]
    with pytest.raises(Deleted):
        parts[1].write(b"more")
    ours.release(written, parts[1])
    left = {path.name.partition(".")[0] for path in tmp_path.glob("cp-*")}
    assert left == {later.id}


def test_its_writer_is_dead(tmp_path: Path) -> None:
    store = Store(tmp_path, limits=StoreLimits())
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
    store = Store(tmp_path, limits=StoreLimits())
    made = checkpoint(store)
    part = store.begin(made)
    part.write(b"archive")
    part.path.rename(tmp_path / f"{made.id}.tar.gz")
    part.close()
    seen = store.get(made.id)
    assert seen is not None
    assert (seen.state, seen.stored_bytes) == ("DURABLE", 7)


def test_its_writer_finishes_while_another_gateway_looks_whether_it_is_alive(tmp_path: Path) -> None:
    ours, theirs = (Store(tmp_path, limits=StoreLimits()) for _ in range(2))
    made = checkpoint(ours)
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
            os.link(tmp_path / f"{made.id}.tar.gz", part.path)  # as if they had opened it before
            reading.write(pending)
        assert seen.result() == made
    assert ours.get(made.id) == made


def test_a_delete_of_an_older_gateway_that_was_cut_short_is_done_again(tmp_path: Path) -> None:
    store = Store(tmp_path, limits=StoreLimits())
    made = checkpoint(store)
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


def test_the_limit_counts_what_is_being_written(tmp_path: Path) -> None:
    store = Store(tmp_path, limits=StoreLimits(total_bytes=100))
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


def kept(store: Store, *, tenant: str, size: int = 1, age: float = 0.0) -> Checkpoint:
    """A DURABLE one."""
    made = checkpoint(store, tenant=tenant, age=age)
    part = store.begin(made)
    part.write(bytes(size))
    store.finish(made, part)
    return made


def failed(store: Store, *, tenant: str = "a", age: float = 0.0) -> Checkpoint:
    made = checkpoint(store, tenant=tenant, age=age)
    part = store.begin(made)
    store.fail(made, "no room")
    part.close()
    return made


def test_a_tenant_has_so_many_and_other_tenants_are_not_concerned(tmp_path: Path) -> None:
    store = Store(tmp_path, limits=StoreLimits(tenant_count=2))
    oldest = kept(store, tenant="a", age=60)
    pending = checkpoint(store, tenant="a")
    part = store.begin(pending)
    with pytest.raises(
        StoreFull, match=r"tenant 'a' has 2 .* limit is 2 .*checkpoint_tenant_count.*delete"
    ) as full:
        store.begin(checkpoint(store, tenant="a"))
    assert f"your oldest is {oldest.id} of sandbox sb-1" in str(full.value)
    kept(store, tenant="b")
    store.delete(oldest)
    kept(store, tenant="a")
    part.discard()


def test_a_tenant_has_so_many_bytes_and_other_tenants_are_not_concerned(tmp_path: Path) -> None:
    store = Store(tmp_path, limits=StoreLimits(tenant_bytes={"a": 100, "b": 150, "c": None}.get))
    first = kept(store, tenant="a", size=100)
    with pytest.raises(
        StoreFull, match=r"tenant 'a' have 100 bytes, the limit is 100 .*checkpoint_tenant_bytes"
    ):
        store.begin(checkpoint(store, tenant="a"))
    kept(store, tenant="b", size=150)
    kept(store, tenant="c", size=200)
    assert [store.used_by(tenant) for tenant in "abcd"] == [100, 150, 200, 0]
    store.delete(first)
    kept(store, tenant="a", size=100)


@pytest.mark.parametrize(
    "limits", [StoreLimits(tenant_bytes=lambda tenant: 150), StoreLimits(total_bytes=150)]
)
def test_archives_that_are_written_beside_each_other_share_the_room(
    tmp_path: Path, limits: StoreLimits
) -> None:
    """Each was begun when nothing was written yet."""
    store = Store(tmp_path, limits=limits)
    parts = [store.begin(checkpoint(store, tenant="a")) for _ in range(3)]
    parts[0].write(bytes(100))
    with pytest.raises(StoreFull):
        parts[1].write(bytes(100))
    parts[2].write(bytes(50))
    assert store.used() == 150
    parts[0].discard()
    parts[1].write(bytes(100))  # what was given back can be used at once
    for part in parts:
        part.discard()


def test_failed_ones_count_for_nothing_and_expire(tmp_path: Path) -> None:
    store = Store(tmp_path, limits=StoreLimits(tenant_count=1, failed_keep=3600))
    made = failed(store)
    kept(store, tenant="a")
    with pytest.raises(StoreFull):
        store.begin(checkpoint(store, tenant="a"))
    assert store.get(made.id) is not None
    later = Store(tmp_path, limits=StoreLimits(failed_keep=0))
    assert later.get(made.id) is None
    assert [one.state for one in later.all()] == ["DURABLE"]
    assert not [path for path in tmp_path.iterdir() if made.id in path.name]


def test_of_failed_ones_the_newest_are_kept(tmp_path: Path) -> None:
    store = Store(tmp_path, limits=StoreLimits())
    others = failed(store, tenant="b", age=1000)
    revoked = kept(store, tenant="a", age=1000)
    store.revoke(revoked, "was killed")
    made = [failed(store, age=500 - number) for number in range(105)]
    assert store.get(others.id) is not None
    own = [one.id for one in store.all() if one.tenant == "a"]
    assert own == [revoked.id, *(one.id for one in made[-100:])]


def test_a_revoked_one_says_why_for_a_while_however_short_others_are_kept(tmp_path: Path) -> None:
    store = Store(tmp_path, limits=StoreLimits(failed_keep=0))
    made = kept(store, tenant="a")
    store.revoke(made, "was killed")
    seen = store.get(made.id)
    assert seen is not None
    assert (seen.state, seen.error) == ("FAILED", "was killed")
    assert store.used() == 0
    made.updated_at -= 130
    (tmp_path / f"{made.id}.json").write_bytes(msgspec.json.encode(made))
    assert store.get(made.id) is None


def test_what_no_document_names_is_taken_away_in_time(tmp_path: Path) -> None:
    store = Store(tmp_path, limits=StoreLimits())
    whole = kept(store, tenant="a")
    left = [tmp_path / f"cp-{'0' * 24}.part", tmp_path / f"cp-{'0' * 24}.json.00000000.new"]
    for path in left:
        path.write_bytes(b"half")
    store.sweep()
    assert all(path.exists() for path in left)
    for path in (*left, tmp_path / f"{whole.id}.tar.gz"):
        os.utime(path, (0, 0))
    store.sweep()
    assert not any(path.exists() for path in left)
    assert (tmp_path / f"{whole.id}.tar.gz").exists()


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
