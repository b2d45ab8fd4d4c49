"""Removing trees: odd modes, great depth, links to elsewhere, and mounts that must survive."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from sandlot_gateway.backends.local.trees import mounts_below, remove_tree, unmount_below


def test_removes_deep_and_locked_directories_and_follows_no_link(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("here")
    tree = tmp_path / "tree"
    (tree / "work" / "work").mkdir(parents=True)
    (tree / "work" / "work" / "file").write_text("")
    (tree / "work" / "work").chmod(0)
    (tree / "link").symlink_to(kept)
    fd = os.open(tree, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=fd)
        deeper = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = deeper
    os.close(fd)
    remove_tree(tree)
    assert not tree.exists()
    assert (kept / "file").read_text() == "here"
    remove_tree(tree)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_mount_is_detached_before_its_place_is_removed(tmp_path: Path) -> None:
    source, place = tmp_path / "source", tmp_path / "tree" / "a b" / "mnt"
    source.mkdir()
    (source / "precious").write_text("1")
    place.mkdir(parents=True)
    subprocess.run(["mount", "--bind", source, place], check=True)
    try:
        assert mounts_below(tmp_path / "tree") == [str(place)]
        assert unmount_below(tmp_path / "tree") == [str(place)]
    finally:
        subprocess.run(["umount", "-l", place], check=False, capture_output=True)
    remove_tree(tmp_path / "tree")
    assert (source / "precious").read_text() == "1"
    assert mounts_below(tmp_path) == []
