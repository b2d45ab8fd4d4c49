"""What our environment of harbor does with archives that hostile code wrote: it ends, and leaves out what it cannot write."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from sandlot.integrations.harbor.unpacking import LONGEST_NAME, UnreadableArchive, unpack


def header(
    name: str, *, size: int = 0, kind: bytes = tarfile.REGTYPE, leads_to: str = "", mode: int = 0o644
) -> bytes:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size, made.mode = kind, leads_to, size, mode
    return made.tobuf(tarfile.GNU_FORMAT)


def member(name: str, data: bytes) -> bytes:
    return header(name, size=len(data)) + data + bytes(-len(data) % 512)


@pytest.mark.parametrize(
    "middle",
    [
        header("back", size=-1024),
        header("back", size=-1024, kind=b"?"),
        header("name", size=LONGEST_NAME + 1, kind=tarfile.GNUTYPE_LONGNAME) + bytes(LONGEST_NAME + 512),
        header("fields", size=23, kind=tarfile.XHDTYPE) + b"22 size=-00000001024\n".ljust(512, b"\0"),
        header("all", kind=tarfile.XGLTYPE),
        header("sparse", kind=tarfile.GNUTYPE_SPARSE),
        header("name", size=512, kind=tarfile.GNUTYPE_LONGNAME) * 1000,
        header("short", size=1 << 40),
        header("far", size=1 << 62),
    ],
    ids=[
        "negative",
        "negative-unknown",
        "long-name",
        "size-field",
        "global",
        "sparse",
        "nested",
        "cut",
        "far",
    ],
)
@pytest.mark.timeout(100)  # it would take for ever
def test_sizes_that_no_tar_writes_end_the_unpacking(middle: bytes, tmp_path: Path):
    archive = io.BytesIO(member("first", b"1") + middle + member("last", b"2") + bytes(1024))
    with pytest.raises(UnreadableArchive):
        unpack(archive, tmp_path)
    assert (tmp_path / "first").read_bytes() == b"1"


def test_a_member_that_the_file_system_refuses_leaves_the_others(tmp_path: Path):
    too_long = "n" * 300
    members = (
        member("kept", b"1"),
        header("kept", kind=tarfile.LNKTYPE, leads_to="kept"),
        header("none", kind=tarfile.LNKTYPE),
        header("empty", kind=tarfile.SYMTYPE),
        header("to", kind=tarfile.SYMTYPE, leads_to="t" * 99),
        header("long", size=301, kind=tarfile.GNUTYPE_LONGNAME),
        too_long.encode() + bytes(212),
        header("cut", size=1),
        bytes(512),
        member("kept/below", b"2"),
        member("last", b"3"),
    )
    unpack(io.BytesIO(b"".join(members) + bytes(1024)), tmp_path)
    found = {path.name: path.is_symlink() or path.read_bytes() for path in tmp_path.iterdir()}
    assert found == {"kept": b"1", "to": True, "last": b"3"}
