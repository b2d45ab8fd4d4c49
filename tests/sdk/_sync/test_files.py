# This file is auto-generated from tests/sdk/_async/test_files.py by tools/async_to_sync.py: do not change it.
"""Files: whole, in windows, streamed, listed, copied both ways."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from sandlot import FileConflict, FileMissing, Sandbox, TransferProgress


def pieces() -> Iterator[bytes]:
    for number in range(5):
        yield b"%d" % number * 1000


def test_write_and_read(box: Sandbox) -> None:
    assert box.files.write("/tmp/k/a b/ü.txt", "höhe") == 5
    assert box.files.read_text("/tmp/k/a b/ü.txt") == "höhe"
    box.files.write("/tmp/k/a b/ü.txt", b"\x00\xff")
    assert box.files.read("/tmp/k/a b/ü.txt") == b"\x00\xff"
    box.files.write("/tmp/k/empty", b"")
    assert box.files.read("/tmp/k/empty") == b""


def test_windows(box: Sandbox) -> None:
    box.files.write("/tmp/w", b"0123456789")
    read = box.files.read
    assert read("/tmp/w", offset=2, length=3) == b"234"
    assert read("/tmp/w", offset=7) == b"789"
    assert read("/tmp/w", offset=-4) == b"6789"
    assert read("/tmp/w", offset=-4, length=2) == b"67"
    assert read("/tmp/w", offset=99) == b""
    assert read("/tmp/w", length=0) == b""
    assert read("/tmp/w", length=4) == b"0123"


NO_SIZES = [-1, -5, float("nan"), 1.0, True, "1", 1 << 63, 1 << 70]


def test_windows_that_are_none(box: Sandbox) -> None:
    box.files.write("/tmp/w", b"0123456789")
    no: Any
    for no in NO_SIZES:
        with pytest.raises(ValueError, match=r"^length: .* from 0 to 2\*\*63-1, not "):
            box.files.read("/tmp/w", offset=1, length=no)
        with pytest.raises(ValueError, match=r"^offset: .* from 0 to 2\*\*63-1, not "):
            _ = [piece for piece in box.files.stream("/tmp/w", offset=no)]
        if no not in (-1, -5):  # which count from the end
            with pytest.raises(ValueError, match=r"^offset: .* from -\(2\*\*63-1\) to 2\*\*63-1, not "):
                box.files.read("/tmp/w", offset=no)


def test_windows_far_outside(box: Sandbox) -> None:
    box.files.write("/tmp/w", b"0123456789")
    most = (1 << 63) - 1
    assert box.files.read("/tmp/w", offset=most) == b""
    assert box.files.read("/tmp/w", offset=most, length=most) == b""
    assert box.files.read("/tmp/w", offset=8, length=most) == b"89"
    assert box.files.read("/tmp/w", offset=-most) == b"0123456789"


def test_what_is_no_path(box: Sandbox) -> None:
    no: Any
    for no in (b"/tmp", 7, None):
        for action in (box.files.exists, box.files.read, box.files.list, box.files.mkdir, box.files.remove):
            with pytest.raises(TypeError, match=r"^path: must be a string"):
                action(no)
        with pytest.raises(TypeError, match=r"^target: must be a string"):
            box.files.move("/tmp/a", no)
        with pytest.raises(TypeError, match=r"^path: must be a string"):
            box.files.upload("/etc/hostname", no)
    with pytest.raises(ValueError, match=r"^path: "):
        box.files.exists("/tmp/\ud800")


def test_a_path_object(box: Sandbox) -> None:
    place = PurePosixPath("/tmp/object")
    box.files.mkdir(place)
    box.files.write(place / "file", "text")
    box.files.move(place / "file", place / "moved")
    assert box.files.read_text(place / "moved") == "text"
    assert box.files.exists(place)


def test_a_name_that_is_no_text(box: Sandbox, tmp_path: Path) -> None:
    name = os.fsdecode(b"a\xffb")
    source = tmp_path / "source"
    (source / name).mkdir(parents=True)
    (source / name / name).write_text("inside")
    box.files.upload(source, "/tmp/bytes")
    assert [entry.name for entry in box.files.list("/tmp/bytes")] == [name]
    assert (box.files.stat(f"/tmp/bytes/{name}/{name}")).size == 6
    box.files.chmod(f"/tmp/bytes/{name}/{name}", mode=0o640)
    box.files.download("/tmp/bytes", tmp_path / "back")
    assert (tmp_path / "back" / name / name).read_text() == "inside"
    box.files.remove(f"/tmp/bytes/{name}", recursive=True)
    assert box.files.list("/tmp/bytes") == []


def test_a_source_of_unknown_length_is_streamed(box: Sandbox) -> None:
    assert box.files.write("/tmp/streamed", pieces()) == 5000
    data = b"".join([piece for piece in box.files.stream("/tmp/streamed")])
    assert data == b"".join(b"%d" % number * 1000 for number in range(5))
    tail = b"".join([piece for piece in box.files.stream("/tmp/streamed", offset=4500)])
    assert tail == b"4" * 500


def test_modes(box: Sandbox) -> None:
    box.files.write("/tmp/script", "#!/bin/sh\necho ran\n", mode=0o755)
    assert (box.files.stat("/tmp/script")).mode == "0755"
    box.files.chmod("/tmp/script", mode=0o600)
    assert (box.files.stat("/tmp/script")).mode == "0600"


def test_directories(box: Sandbox) -> None:
    files = box.files
    files.mkdir("/tmp/d/e")
    for name in ("c", "a", "b"):
        files.write(f"/tmp/d/{name}", name)
    entries = files.list("/tmp/d")
    assert [(entry.name, entry.type) for entry in entries] == [
        ("a", "file"),
        ("b", "file"),
        ("c", "file"),
        ("e", "dir"),
    ]
    files.move("/tmp/d/a", "/tmp/d/e/moved")
    assert files.read("/tmp/d/e/moved") == b"a"
    assert not files.exists("/tmp/d/a")
    with pytest.raises(FileConflict):
        files.remove("/tmp/d")
    files.remove("/tmp/d", recursive=True)
    assert not files.exists("/tmp/d")


def test_what_is_missing(box: Sandbox) -> None:
    for action in (box.files.read, box.files.stat, box.files.list, box.files.remove):
        with pytest.raises(FileMissing, match="/tmp/none"):
            action("/tmp/none")
    box.files.remove("/tmp/none", missing_ok=True)


def test_upload_and_download(box: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "tree"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "one").write_bytes(b"1" * 3_000_000)
    (source / "deep" / "er" / "two").write_text("zwei")
    (source / "deep" / "er" / "two").chmod(0o750)
    counted: list[int] = []
    seen: list[TransferProgress] = []
    sent = box.files.upload(source, "/tmp/up", on_bytes=counted.append, progress=seen.append)
    assert sent == sum(counted) == 3_000_004
    assert {now.total_bytes for now in seen} == {3_000_004}
    assert [now.bytes for now in seen] == sorted(now.bytes for now in seen)
    assert seen[-1] == TransferProgress(bytes=3_000_004, total_bytes=3_000_004, files=2)
    counted.clear()
    seen.clear()
    got = box.files.download("/tmp/up", tmp_path / "back", on_bytes=counted.append, progress=seen.append)
    assert got == sum(counted) == 3_000_004
    assert {now.total_bytes for now in seen} == {3_000_004}
    assert seen[-1] == TransferProgress(bytes=3_000_004, total_bytes=3_000_004, files=2)
    assert (tmp_path / "back/one").read_bytes() == (source / "one").read_bytes()
    assert (tmp_path / "back/deep/er/two").read_text() == "zwei"
    assert (tmp_path / "back/deep/er/two").stat().st_mode & 0o777 == 0o750
    (tmp_path / "into").mkdir()
    box.files.download("/tmp/up/deep/er/two", tmp_path / "into", progress=seen.append)
    assert seen[-1] == TransferProgress(bytes=4, total_bytes=4, files=1)
    assert (tmp_path / "into/two").read_text() == "zwei"
    with pytest.raises(FileMissing):
        box.files.download("/tmp/none", tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_links_are_followed(box: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "tree"
    (source / "real" / "deep").mkdir(parents=True)
    (source / "real" / "deep" / "file").write_text("text")
    (source / "twice").symlink_to("real/deep")
    (source / "name").symlink_to("real/deep/file")
    box.files.upload(source, "/tmp/links")
    for path in ("real/deep/file", "twice/file", "name"):
        assert box.files.read_text(f"/tmp/links/{path}") == "text"
    assert (box.files.stat("/tmp/links/twice", follow=False)).type == "dir"


def test_many_small_files_both_ways(box: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "tree"
    for number in range(150):
        file = source / f"{number % 5}" / f"{number % 3}" / str(number)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(str(number))
    seen: list[TransferProgress] = []
    assert box.files.upload(source, "/tmp/many", progress=seen.append) == 340
    box.exec("ln -s /etc/passwd /tmp/many/0/out; ln -s . /tmp/many/around")
    assert box.files.download("/tmp/many", tmp_path / "back", progress=seen.append) == 340
    assert seen[-1] == TransferProgress(bytes=340, total_bytes=340, files=150)

    def found(top: Path) -> dict[str, str]:
        return {str(path.relative_to(top)): path.read_text() for path in top.rglob("*") if path.is_file()}

    assert found(tmp_path / "back") == found(source)
    assert not (tmp_path / "back" / "around").is_symlink()
    with pytest.raises(ZeroDivisionError):  # the first error ends the copy
        box.files.upload(source, "/tmp/again", progress=lambda now: 1 // (now.files // 20 - 1))
    folders = [f"/tmp/again/{a}/{b}" for a in range(5) for b in range(3)]
    sent = sum([len(box.files.list(folder)) for folder in folders])
    assert 20 <= sent <= 40  # with those that were under way


def test_links_that_cannot_be_followed(box: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "tree"
    (source / "deep").mkdir(parents=True)
    link = source / "deep" / "link"
    for target, error in (("nowhere", "leads to nowhere, which does not exist"), ("..", "leads back to ")):
        link.symlink_to(target)
        with pytest.raises(OSError, match=error) as failed:
            box.files.upload(source, "/tmp/unfollowed")
        assert failed.value.filename == str(link)
        assert not box.files.exists("/tmp/unfollowed")
        link.unlink()


def test_directories_keep_their_modes(box: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "tree"
    (source / "closed").mkdir(parents=True)
    (source / "closed" / "file").write_text("text")
    source.chmod(0o750)
    (source / "closed").chmod(0o2700)
    box.files.mkdir("/tmp/modes/there", mode=0o711)
    box.files.upload(source, "/tmp/modes/new/")
    box.files.upload(source, "/tmp/modes/there")
    modes = [(box.files.stat(f"/tmp/modes/{path}")).mode for path in ("new", "new/closed", "there")]
    assert modes == ["0750", "2700", "0711"]
