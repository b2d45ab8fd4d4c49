"""A copy of a directory of checkpoints, by the page's program, while gateways write and delete: each is whole or not there."""

from __future__ import annotations

import random
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sandlot_gateway.checkpoints.checkpoint import Checkpoint, State
from sandlot_gateway.checkpoints.rules import StoreLimits
from sandlot_gateway.checkpoints.store import Store

from tests.checkpoint_copies import DIRECTORY, page_program
from tests.gateway.checkpoint_documents import checkpoint
from tests.waiting import wait_until

END = b"\0\0\xff\xff"  # of what a sidecar has compressed on its own
SIZE = 1_000_000  # bytes of a chunk: a pipe has room for less
BLOCKS = [random.Random(number).randbytes(SIZE) + END for number in range(3)]

# Before the program, so that it waits once between the manifest and the packs of a checkpoint.
PAUSE = """
import sys
real = open
def open(name, *words):
    if name == "{id}.tar.gz" and not sys.stdin.closed:
        print("there", file=sys.stderr, flush=True)
        with sys.stdin:
            sys.stdin.readline()
    return real(name, *words)
"""


def saved(store: Store, *numbers: int) -> Checkpoint:
    made = checkpoint()
    made.name = "same"
    part = store.begin(made)
    for number in numbers:
        part.write(BLOCKS[number])
    store.finish(made, part)
    return made


def read(store: Store, made: Checkpoint) -> bytes:
    with closing(store.open(made)) as archive:
        return b"".join(iter(lambda: archive.read(1 << 20), b""))


def words(name: str, directory: Path) -> list[str]:
    return [sys.executable, "-c", page_program(name).replace(DIRECTORY, str(directory))]


def restored(archive: bytes, directory: Path) -> Store:
    directory.mkdir()
    subprocess.run(words("back", directory), input=archive, check=True, timeout=60)
    return Store(directory, limits=StoreLimits())


def test_what_gateways_change_meanwhile_makes_no_copy_fail_and_no_checkpoint_damaged(tmp_path: Path) -> None:
    place = tmp_path / "checkpoints"
    store = Store(place, limits=StoreLimits())
    writing = checkpoint()  # without a manifest, so that it comes first
    part = store.begin(writing)
    first, deleted, shares, last = saved(store, 0), saved(store, 1), saved(store, 0, 2), saved(store, 2)
    with subprocess.Popen(words("copy", place), stdout=subprocess.PIPE) as copy:
        assert copy.stdout is not None
        begun = copy.stdout.read(64 << 10)  # it has a list of all, and is within the first pack
        store.delete(deleted)
        store.delete(first)
        part.write(BLOCKS[1])
        store.finish(writing, part)
        since = saved(store, 1)
        archive = begun + copy.stdout.read()
    assert copy.returncode == 0
    copied = restored(archive, tmp_path / "copy")
    assert read(copied, first) == BLOCKS[0]
    assert read(copied, shares) == BLOCKS[0] + BLOCKS[2]
    assert read(copied, last) == BLOCKS[2]
    states = {each.id: each.state for each in copied.all()}
    assert states.pop(writing.id) is State.FAILED
    assert states == dict.fromkeys((first.id, shares.id, last.id), State.DURABLE)
    assert since.id not in states


@pytest.mark.parametrize("change", ["finish", "delete"])
def test_one_that_changes_while_its_files_are_read_is_whole_or_not_there(tmp_path: Path, change: str) -> None:
    place = tmp_path / "checkpoints"
    store = Store(place, limits=StoreLimits())
    made = checkpoint()
    part = store.begin(made)
    part.write(BLOCKS[1])
    if change == "delete":
        store.finish(made, part)
    before = saved(store, 0)
    command = words("copy", place)
    command[-1] = PAUSE.format(id=made.id) + command[-1]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as copy:
        assert copy.stderr is not None
        assert copy.stderr.readline() == b"there\n"
        if change == "finish":
            store.finish(made, part)
        else:
            store.delete(made)
        archive, complaints = copy.communicate(b"go on\n", timeout=60)
    assert (copy.returncode, complaints) == (0, b"")
    copied = restored(archive, tmp_path / "copy")
    assert read(copied, before) == BLOCKS[0]
    whole = {made.id, before.id} if change == "finish" else {before.id}
    assert {each.id: each.state for each in copied.all()} == dict.fromkeys(whole, State.DURABLE)
    if change == "finish":
        assert read(copied, made) == BLOCKS[1]


def test_packs_are_shared_in_a_copy_and_names_keep_their_order(tmp_path: Path) -> None:
    place = tmp_path / "checkpoints"
    store = Store(place, limits=StoreLimits())
    made: list[Checkpoint] = []
    for numbers in ((0,), *[(0, 1)] * 8):
        made.append(saved(store, *numbers))
        [manifest] = place.glob(f"{made[-1].id}.packs.*/manifest")
        wait_for_the_next_time(manifest, tmp_path / "clock")
    copy = subprocess.run(words("copy", place), capture_output=True, check=True, timeout=60)
    assert len(copy.stdout) < 2.5 * SIZE
    copied = restored(copy.stdout, tmp_path / "copy")
    assert [each.id for each in copied.named("default", "same")] == [each.id for each in made]
    assert copied.used() == store.used()
    for each in made[:-1]:
        copied.delete(each)
    assert read(copied, made[-1]) == BLOCKS[0] + BLOCKS[1]
    copied.delete(made[-1])
    assert list((tmp_path / "copy").iterdir()) == []


def wait_for_the_next_time(file: Path, clock: Path) -> None:
    """Until the file system gives new files a later time than this one's."""

    def later() -> bool:
        clock.touch()
        return clock.stat().st_ctime_ns > file.stat().st_ctime_ns

    wait_until(later, pause=0.001)
