"""Trees that hold little are deleted at once, and no others."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from sandlot_sidecar.executor.delete_tree import FEW_ENTRIES, SMALL_DIRECTORY, SMALL_FILE, delete_little_tree


def little(path: Path) -> None:
    (path / "a" / "b").mkdir(parents=True)
    (path / "a" / "file").write_bytes(b"x" * (SMALL_FILE // 2))
    (path / "a" / "b" / "link").symlink_to("/etc")
    os.mkfifo(path / "pipe")


def few(path: Path) -> None:
    path.mkdir()
    for number in range(FEW_ENTRIES):
        (path / str(number)).touch()


def many(path: Path) -> None:
    few(path)
    (path / "one more").touch()


def many_below(path: Path) -> None:
    path.mkdir()
    few(path / "a")


def deep(path: Path) -> None:
    path.joinpath(*["d"] * (FEW_ENTRIES + 1)).mkdir(parents=True)


def large(path: Path) -> None:
    path.mkdir()
    (path / "file").write_bytes(b"x" * (SMALL_FILE + 1))


def sparse(path: Path) -> None:
    path.mkdir()
    (path / "file").touch()
    os.truncate(path / "file", SMALL_FILE + 1)


def emptied(path: Path) -> None:
    """Of a file system whose directories keep the size that their entries took, as those of ext4 do."""
    path.mkdir()
    for number in range(4000):
        (path / f"{number:0200}").touch()
    for entry in list(path.iterdir()):
        entry.unlink()
    if path.stat().st_size <= SMALL_DIRECTORY:
        pytest.skip("needs a file system whose emptied directories keep their size")


def delete(path: Path) -> int | None:
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return delete_little_tree(path.name, directory=directory)
    finally:
        os.close(directory)


@pytest.mark.parametrize(("make", "left"), [(little, FEW_ENTRIES - 5), (few, 0)])
def test_a_tree_that_holds_little_is_deleted(tmp_path: Path, make: Callable[[Path], None], left: int) -> None:
    make(tmp_path / "tree")
    assert delete(tmp_path / "tree") == left
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", [many, many_below, deep, large, sparse, emptied])
def test_one_that_holds_more_is_left(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "tree")
    assert delete(tmp_path / "tree") is None
    assert (tmp_path / "tree").is_dir()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "kept")
    assert delete(tmp_path / "tree") is not None
    assert (tmp_path / "kept" / "file").exists()
    (tmp_path / "tree").symlink_to(tmp_path / "kept")
    with pytest.raises(NotADirectoryError):
        delete(tmp_path / "tree")
