"""Layers and archives: the same bytes for the same contents, and digests that are those of the contents."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from pathlib import Path

import pytest

from images.oci import Entry, archive_index, rename, tree, write_archive, write_layer

EPOCH = 1_700_000_000


def make_tree(root: Path, *, names: list[str], mtime: int) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"contents of {name}\n")
        os.utime(path, (mtime, mtime))
    (root / "link").symlink_to(names[0])
    os.link(root / names[0], root / "zz-hard")
    return root


def test_order_and_time_of_writing_leave_no_trace(tmp_path: Path) -> None:
    names = ["a/one", "b/two", "b/three"]
    one = make_tree(tmp_path / "one", names=names, mtime=EPOCH + 10)
    other = make_tree(tmp_path / "other", names=names[::-1], mtime=EPOCH + 999)
    (other / "link").unlink()
    (other / "link").symlink_to(names[0])
    (other / "zz-hard").unlink()
    os.link(other / names[0], other / "zz-hard")
    write_layer(tmp_path / "1.layer", entries=tree(one), epoch=EPOCH)
    write_layer(tmp_path / "2.layer", entries=tree(other)[::-1], epoch=EPOCH)
    assert (tmp_path / "1.layer").read_bytes() == (tmp_path / "2.layer").read_bytes()


def test_owner_prefix_and_links_are_kept(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "root", names=["a/one"], mtime=EPOCH)
    layer = tmp_path / "layer"
    write_layer(layer, entries=tree(root, prefix="/opt/app", owner=(65532, 65532)), epoch=EPOCH)
    with tarfile.open(layer) as tar:
        members = {member.name: member for member in tar}
    assert members["opt"].isdir()
    assert members["opt"].uid == 0
    assert members["opt/app/a/one"].uid == 65532
    assert members["opt/app/a/one"].uname == ""
    assert members["opt/app/link"].issym()
    assert members["opt/app/zz-hard"].linkname == "opt/app/a/one"


def test_skipped_files_are_left_out(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "root", names=["a/one", "b/two"], mtime=EPOCH)
    layer = tmp_path / "layer"
    write_layer(layer, entries=tree(root), epoch=EPOCH, skip=lambda path: path.startswith("b/"))
    with tarfile.open(layer) as tar:
        assert "b/two" not in tar.getnames()
        assert "a/one" in tar.getnames()


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    source = tmp_path / "file"
    source.write_text("x")
    out = tmp_path / "one.layer"
    write_layer(out, entries=[Entry(path="usr/bin/x", source=source, owner=(0, 0))], epoch=EPOCH)
    return out


def test_an_archive_is_what_the_format_asks_for(layer: Path, tmp_path: Path) -> None:
    archive = tmp_path / "image.tar"
    digest = write_archive(
        archive, reference="r.test/x:1", layers=[layer], config={"Env": ["A=1"]}, epoch=EPOCH
    )
    assert archive_index(archive) == ("r.test/x:1", digest)
    with tarfile.open(archive) as tar:
        blobs = {
            member.name.removeprefix("blobs/sha256/"): tar.extractfile(member).read()  # type: ignore[union-attr]
            for member in tar
            if member.name.startswith("blobs/")
        }
    assert all(hashlib.sha256(data).hexdigest() == name for name, data in blobs.items())
    manifest = json.loads(blobs[digest.removeprefix("sha256:")])
    config = json.loads(blobs[manifest["config"]["digest"].removeprefix("sha256:")])
    assert config["config"]["Env"] == ["A=1"]
    assert config["rootfs"]["diff_ids"] == [layer["digest"] for layer in manifest["layers"]]
    assert manifest["layers"][0]["size"] == layer.stat().st_size


def test_an_archive_made_twice_is_the_same(layer: Path, tmp_path: Path) -> None:
    for name in ("1.tar", "2.tar"):
        write_archive(tmp_path / name, reference="r.test/x:1", layers=[layer], config={}, epoch=EPOCH)
    assert (tmp_path / "1.tar").read_bytes() == (tmp_path / "2.tar").read_bytes()


def test_a_renamed_archive_is_the_one_that_would_be_made_with_that_name(layer: Path, tmp_path: Path) -> None:
    for name in ("1", "2"):
        write_archive(
            tmp_path / f"{name}.tar", reference=f"r.test/x:{name}", layers=[layer], config={}, epoch=EPOCH
        )
    digest = rename(tmp_path / "1.tar", tmp_path / "out.tar", reference="r.test/x:2", epoch=EPOCH)
    assert archive_index(tmp_path / "out.tar") == ("r.test/x:2", digest)
    assert (tmp_path / "out.tar").read_bytes() == (tmp_path / "2.tar").read_bytes()
