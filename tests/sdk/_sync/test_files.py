# This file is auto-generated from tests/sdk/_async/test_files.py by tools/async_to_sync.py: do not change it.
"""Files: whole, in windows, streamed, listed, copied both ways."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot import FileConflict, FileMissing, Sandbox


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
    sent = box.files.upload(source, "/tmp/up", on_bytes=counted.append)
    assert sent == sum(counted) == 3_000_004
    counted.clear()
    got = box.files.download("/tmp/up", tmp_path / "back", on_bytes=counted.append)
    assert got == sum(counted) == 3_000_004
    assert (tmp_path / "back/one").read_bytes() == (source / "one").read_bytes()
    assert (tmp_path / "back/deep/er/two").read_text() == "zwei"
    assert (tmp_path / "back/deep/er/two").stat().st_mode & 0o777 == 0o750
    (tmp_path / "into").mkdir()
    box.files.download("/tmp/up/deep/er/two", tmp_path / "into")
    assert (tmp_path / "into/two").read_text() == "zwei"
    with pytest.raises(FileMissing):
        box.files.download("/tmp/none", tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
