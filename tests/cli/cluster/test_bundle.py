"""The bounds of a support bundle: its size, the texts that go into it, and its file."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from sandlot.cli.cluster.api import Unread
from sandlot.cli.cluster.bundle import Bundle, created
from sandlot.cli.cluster.redaction import Redactor

SECRET = "swordfish-9"


def test_what_has_no_room_is_left_out_and_listed() -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        bundle = Bundle(tar, Redactor([SECRET]), "root", left=100)
        bundle.add("logs/large.log", "x" * 101)
        bundle.add("metrics/gateway-g-1.txt", f'sandlot_x{{of="{SECRET}"}} 1.0\n')
        bundle.add("logs/unread.log", Unread(f"502: {SECRET}"))
        bundle.close()
    file.seek(0)
    with tarfile.open(fileobj=file) as tar:
        contents = {member.name: tar.extractfile(member) for member in tar}
        texts = {name: stream.read().decode() for name, stream in contents.items() if stream is not None}
    assert set(texts) == {"root/metrics/gateway-g-1.txt", "root/not-included.txt"}
    lacking = texts["root/not-included.txt"]
    assert "logs/large.log: 101 bytes, more than the bundle has room for" in lacking
    assert "logs/unread.log: 502: (removed)" in lacking
    assert all(SECRET not in text for text in texts.values())


def test_an_archive_that_does_not_become_whole_does_not_stay(tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"
    with pytest.raises(OSError, match="disk"), created(path) as file:
        file.write(b"half")
        raise OSError("the disk is full")
    assert not path.exists()
    with created(path) as file:
        file.write(b"whole")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"whole", 0o600)
    with pytest.raises(FileExistsError), created(path):
        pytest.fail("it overwrites a file")
    assert path.read_bytes() == b"whole"
