"""Archives of layers that have much in common have most of their bytes in common, and each is one gzip stream."""

from __future__ import annotations

import gzip
import io
import os
import random
import tarfile
from pathlib import Path

import pytest
from sandlot_sidecar.layer.export import Exporter
from sandlot_sidecar.layer.restore import Restorer

END = b"\0\0\xff\xff"


def archive(root: Path, *, compresses: bool = True) -> bytes:
    out = io.BytesIO()
    fd = os.open(root, os.O_RDONLY)
    try:
        Exporter(out, max_bytes=None, compresses=compresses).run([fd])
    finally:
        os.close(fd)
    return out.getvalue()


def parts(data: bytes) -> set[bytes]:
    return {one + END for one in data.split(END)}


def new_bytes(data: bytes, before: bytes) -> int:
    return sum(map(len, parts(data) - parts(before)))


def tree(root: Path) -> None:
    """The same lengths each time: with others, which are rare, a change is in the longest of parts."""
    chance = random.Random(1)
    for number in range(400):
        path = root / f"d{number % 7}" / f"f{number}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(chance.randbytes(chance.randint(0, 8000)))
    (root / "large").write_bytes(chance.randbytes(3_000_000))


@pytest.mark.parametrize("compresses", [True, False], ids=["compressed", "stored"])
def test_a_change_changes_the_parts_around_it(tmp_path: Path, compresses: bool) -> None:
    tree(tmp_path)
    before = archive(tmp_path, compresses=compresses)
    assert archive(tmp_path, compresses=compresses) == before
    (tmp_path / "d3" / "f101").write_bytes(random.randbytes(5000))
    (tmp_path / "d0" / "new").write_bytes(b"new")
    assert new_bytes(archive(tmp_path, compresses=compresses), before) < 1_200_000
    assert len(before) > 4_000_000


def test_a_large_file_is_the_same_wherever_it_is(tmp_path: Path) -> None:
    tree(tmp_path)
    before = archive(tmp_path)
    (tmp_path / "large").rename(tmp_path / "d2" / "elsewhere")
    os.utime(tmp_path / "d2" / "elsewhere", ns=(1, 1_234_567_890_123_456_789))
    assert new_bytes(archive(tmp_path), before) < 900_000


def test_an_archive_is_one_gzip_stream_that_says_what_it_has(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    tree(source)
    data = archive(source)
    assert len(data) < len(gzip.compress(gzip.decompress(data), 1)) * 1.05
    with tarfile.open(fileobj=io.BytesIO(data), mode="r|gz") as opened:
        names = {one.name for one in opened}
    assert names == {str(path.relative_to(source)) for path in source.rglob("*")}
    fd = os.open(target, os.O_RDONLY)
    Restorer(fd, max_bytes=None).run(io.BytesIO(data))
    os.close(fd)
    assert archive(target) == data


@pytest.mark.parametrize("at", [0, 1, 1_700_000_000_123_456_789, 1_700_000_000_000_000_000, -1_500_000_000])
def test_a_restored_file_has_its_time_to_the_nanosecond(tmp_path: Path, at: int) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    for path in (source, target):
        path.mkdir()
    (source / "file").write_bytes(b"x")
    os.utime(source / "file", ns=(at, at))
    fd = os.open(target, os.O_RDONLY)
    Restorer(fd, max_bytes=None).run(io.BytesIO(archive(source)))
    os.close(fd)
    assert (target / "file").stat().st_mtime_ns == at
