"""Archives that code of another sandbox made for `COPY --from`: only the planned files, of their sizes, are taken."""

from __future__ import annotations

import tarfile

import pytest
from sandlot._async.packing import contents

PLANNED = {"/a": 3, "/b": 3}


def member(name: str, content: bytes = b"abc", *, kind: bytes = tarfile.REGTYPE, **fields: object) -> bytes:
    one = tarfile.TarInfo(name)
    one.type, one.size = kind, len(content)
    for field, value in fields.items():
        setattr(one, field, value)
    padding = -len(content) % tarfile.BLOCKSIZE
    return one.tobuf(tarfile.PAX_FORMAT) + content + bytes(padding)


def link(name: str, target: str, *, kind: bytes = tarfile.LNKTYPE) -> bytes:
    return member(name, b"", kind=kind, linkname=target)


def sparse(name: str, size: int) -> bytes:
    fields = {"GNU.sparse.size": str(size), "GNU.sparse.map": "", "GNU.sparse.numblocks": "0"}
    return member(name, b"", pax_headers=fields)


END = bytes(1024)


def test_files_and_hard_links_to_them_are_taken() -> None:
    assert contents(member("./a") + link("./b", "./a") + END, PLANNED) == {"/a": b"abc", "/b": b"abc"}


@pytest.mark.parametrize(
    "packed",
    [
        sparse("a", 3) + member("b"),
        sparse("a", 1 << 50) + member("b"),
        member("a") + member("b", pax_headers={"size": str(1 << 70)}),
        member("a") + member("b", pax_headers={"size": "-1024"}),
        member("a") + member("b", b"abcd"),
        member("a") + link("b", "b", kind=tarfile.SYMTYPE),
        member("a") + link("b", "b"),
        member("a") + link("b", "a") * 10_000,
        member("a") + member("c"),
        member("a") + b"x" * 512,
        member("a", kind=tarfile.XHDTYPE, content=b"") * 5_000,
        member("a"),
    ],
)
def test_any_other_archive_is_refused(packed: bytes) -> None:
    assert contents(packed + END, PLANNED) is None
