"""Files: whole, in windows, streamed, listed, copied both ways."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sandlot import AsyncSandbox, FileConflict, FileMissing


async def pieces() -> AsyncIterator[bytes]:
    for number in range(5):
        yield b"%d" % number * 1000


async def test_write_and_read(box: AsyncSandbox) -> None:
    assert await box.files.write("/tmp/k/a b/ü.txt", "höhe") == 5
    assert await box.files.read_text("/tmp/k/a b/ü.txt") == "höhe"
    await box.files.write("/tmp/k/a b/ü.txt", b"\x00\xff")
    assert await box.files.read("/tmp/k/a b/ü.txt") == b"\x00\xff"
    await box.files.write("/tmp/k/empty", b"")
    assert await box.files.read("/tmp/k/empty") == b""


async def test_windows(box: AsyncSandbox) -> None:
    await box.files.write("/tmp/w", b"0123456789")
    read = box.files.read
    assert await read("/tmp/w", offset=2, length=3) == b"234"
    assert await read("/tmp/w", offset=7) == b"789"
    assert await read("/tmp/w", offset=-4) == b"6789"
    assert await read("/tmp/w", offset=-4, length=2) == b"67"
    assert await read("/tmp/w", offset=99) == b""
    assert await read("/tmp/w", length=0) == b""
    assert await read("/tmp/w", length=4) == b"0123"


async def test_a_source_of_unknown_length_is_streamed(box: AsyncSandbox) -> None:
    assert await box.files.write("/tmp/streamed", pieces()) == 5000
    data = b"".join([piece async for piece in box.files.stream("/tmp/streamed")])
    assert data == b"".join(b"%d" % number * 1000 for number in range(5))
    tail = b"".join([piece async for piece in box.files.stream("/tmp/streamed", offset=4500)])
    assert tail == b"4" * 500


async def test_modes(box: AsyncSandbox) -> None:
    await box.files.write("/tmp/script", "#!/bin/sh\necho ran\n", mode=0o755)
    assert (await box.files.stat("/tmp/script")).mode == "0755"
    await box.files.chmod("/tmp/script", mode=0o600)
    assert (await box.files.stat("/tmp/script")).mode == "0600"


async def test_directories(box: AsyncSandbox) -> None:
    files = box.files
    await files.mkdir("/tmp/d/e")
    for name in ("c", "a", "b"):
        await files.write(f"/tmp/d/{name}", name)
    entries = await files.list("/tmp/d")
    assert [(entry.name, entry.type) for entry in entries] == [
        ("a", "file"),
        ("b", "file"),
        ("c", "file"),
        ("e", "dir"),
    ]
    await files.move("/tmp/d/a", "/tmp/d/e/moved")
    assert await files.read("/tmp/d/e/moved") == b"a"
    assert not await files.exists("/tmp/d/a")
    with pytest.raises(FileConflict):
        await files.remove("/tmp/d")
    await files.remove("/tmp/d", recursive=True)
    assert not await files.exists("/tmp/d")


async def test_what_is_missing(box: AsyncSandbox) -> None:
    for action in (box.files.read, box.files.stat, box.files.list, box.files.remove):
        with pytest.raises(FileMissing, match="/tmp/none"):
            await action("/tmp/none")
    await box.files.remove("/tmp/none", missing_ok=True)


async def test_upload_and_download(box: AsyncSandbox, tmp_path: Path) -> None:
    source = tmp_path / "tree"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "one").write_bytes(b"1" * 3_000_000)
    (source / "deep" / "er" / "two").write_text("zwei")
    (source / "deep" / "er" / "two").chmod(0o750)
    counted: list[int] = []
    sent = await box.files.upload(source, "/tmp/up", on_bytes=counted.append)
    assert sent == sum(counted) == 3_000_004
    counted.clear()
    got = await box.files.download("/tmp/up", tmp_path / "back", on_bytes=counted.append)
    assert got == sum(counted) == 3_000_004
    assert (tmp_path / "back/one").read_bytes() == (source / "one").read_bytes()
    assert (tmp_path / "back/deep/er/two").read_text() == "zwei"
    assert (tmp_path / "back/deep/er/two").stat().st_mode & 0o777 == 0o750
    (tmp_path / "into").mkdir()
    await box.files.download("/tmp/up/deep/er/two", tmp_path / "into")
    assert (tmp_path / "into/two").read_text() == "zwei"
    with pytest.raises(FileMissing):
        await box.files.download("/tmp/none", tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
