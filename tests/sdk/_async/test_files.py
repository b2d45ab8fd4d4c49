"""Files: whole, in windows, streamed, listed, copied both ways."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from sandlot import AsyncSandbox, FileConflict, FileMissing, TransferProgress


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


NO_SIZES = [-1, -5, float("nan"), 1.0, True, "1", 1 << 63, 1 << 70]


async def test_windows_that_are_none(box: AsyncSandbox) -> None:
    await box.files.write("/tmp/w", b"0123456789")
    no: Any
    for no in NO_SIZES:
        with pytest.raises(ValueError, match=r"^length: .* from 0 to 2\*\*63-1, not "):
            await box.files.read("/tmp/w", offset=1, length=no)
        with pytest.raises(ValueError, match=r"^offset: .* from 0 to 2\*\*63-1, not "):
            _ = [piece async for piece in box.files.stream("/tmp/w", offset=no)]
        if no not in (-1, -5):  # which count from the end
            with pytest.raises(ValueError, match=r"^offset: .* from -\(2\*\*63-1\) to 2\*\*63-1, not "):
                await box.files.read("/tmp/w", offset=no)


async def test_windows_far_outside(box: AsyncSandbox) -> None:
    await box.files.write("/tmp/w", b"0123456789")
    most = (1 << 63) - 1
    assert await box.files.read("/tmp/w", offset=most) == b""
    assert await box.files.read("/tmp/w", offset=most, length=most) == b""
    assert await box.files.read("/tmp/w", offset=8, length=most) == b"89"
    assert await box.files.read("/tmp/w", offset=-most) == b"0123456789"


async def test_what_is_no_path(box: AsyncSandbox) -> None:
    no: Any
    for no in (b"/tmp", 7, None):
        for action in (box.files.exists, box.files.read, box.files.list, box.files.mkdir, box.files.remove):
            with pytest.raises(TypeError, match=r"^path: must be a string"):
                await action(no)
        with pytest.raises(TypeError, match=r"^target: must be a string"):
            await box.files.move("/tmp/a", no)
        with pytest.raises(TypeError, match=r"^path: must be a string"):
            await box.files.upload("/etc/hostname", no)
    with pytest.raises(ValueError, match=r"^path: "):
        await box.files.exists("/tmp/\ud800")


async def test_a_path_object(box: AsyncSandbox) -> None:
    place = PurePosixPath("/tmp/object")
    await box.files.mkdir(place)
    await box.files.write(place / "file", "text")
    await box.files.move(place / "file", place / "moved")
    assert await box.files.read_text(place / "moved") == "text"
    assert await box.files.exists(place)


async def test_a_name_that_is_no_text(box: AsyncSandbox, tmp_path: Path) -> None:
    name = os.fsdecode(b"a\xffb")
    source = tmp_path / "source"
    (source / name).mkdir(parents=True)
    (source / name / name).write_text("inside")
    await box.files.upload(source, "/tmp/bytes")
    assert [entry.name for entry in await box.files.list("/tmp/bytes")] == [name]
    assert (await box.files.stat(f"/tmp/bytes/{name}/{name}")).size == 6
    await box.files.chmod(f"/tmp/bytes/{name}/{name}", mode=0o640)
    await box.files.download("/tmp/bytes", tmp_path / "back")
    assert (tmp_path / "back" / name / name).read_text() == "inside"
    await box.files.remove(f"/tmp/bytes/{name}", recursive=True)
    assert await box.files.list("/tmp/bytes") == []


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
    seen: list[TransferProgress] = []
    sent = await box.files.upload(source, "/tmp/up", on_bytes=counted.append, progress=seen.append)
    assert sent == sum(counted) == 3_000_004
    assert {now.total_bytes for now in seen} == {3_000_004}
    assert [now.bytes for now in seen] == sorted(now.bytes for now in seen)
    assert seen[-1] == TransferProgress(bytes=3_000_004, total_bytes=3_000_004, files=2)
    counted.clear()
    seen.clear()
    got = await box.files.download(
        "/tmp/up", tmp_path / "back", on_bytes=counted.append, progress=seen.append
    )
    assert got == sum(counted) == 3_000_004
    assert {now.total_bytes for now in seen} == {3_000_004}
    assert seen[-1] == TransferProgress(bytes=3_000_004, total_bytes=3_000_004, files=2)
    assert (tmp_path / "back/one").read_bytes() == (source / "one").read_bytes()
    assert (tmp_path / "back/deep/er/two").read_text() == "zwei"
    assert (tmp_path / "back/deep/er/two").stat().st_mode & 0o777 == 0o750
    (tmp_path / "into").mkdir()
    await box.files.download("/tmp/up/deep/er/two", tmp_path / "into", progress=seen.append)
    assert seen[-1] == TransferProgress(bytes=4, total_bytes=4, files=1)
    assert (tmp_path / "into/two").read_text() == "zwei"
    with pytest.raises(FileMissing):
        await box.files.download("/tmp/none", tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


async def test_links_are_followed(box: AsyncSandbox, tmp_path: Path) -> None:
    source = tmp_path / "tree"
    (source / "real" / "deep").mkdir(parents=True)
    (source / "real" / "deep" / "file").write_text("text")
    (source / "twice").symlink_to("real/deep")
    (source / "name").symlink_to("real/deep/file")
    await box.files.upload(source, "/tmp/links")
    for path in ("real/deep/file", "twice/file", "name"):
        assert await box.files.read_text(f"/tmp/links/{path}") == "text"
    assert (await box.files.stat("/tmp/links/twice", follow=False)).type == "dir"


async def test_many_small_files_both_ways(box: AsyncSandbox, tmp_path: Path) -> None:
    source = tmp_path / "tree"
    for number in range(150):
        file = source / f"{number % 5}" / f"{number % 3}" / str(number)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(str(number))
    seen: list[TransferProgress] = []
    assert await box.files.upload(source, "/tmp/many", progress=seen.append) == 340
    await box.exec("ln -s /etc/passwd /tmp/many/0/out; ln -s . /tmp/many/around")
    assert await box.files.download("/tmp/many", tmp_path / "back", progress=seen.append) == 340
    assert seen[-1] == TransferProgress(bytes=340, total_bytes=340, files=150)

    def found(top: Path) -> dict[str, str]:
        return {str(path.relative_to(top)): path.read_text() for path in top.rglob("*") if path.is_file()}

    assert found(tmp_path / "back") == found(source)
    assert not (tmp_path / "back" / "around").is_symlink()
    with pytest.raises(ZeroDivisionError):  # the first error ends the copy
        await box.files.upload(source, "/tmp/again", progress=lambda now: 1 // (now.files // 20 - 1))
    folders = [f"/tmp/again/{a}/{b}" for a in range(5) for b in range(3)]
    sent = sum([len(await box.files.list(folder)) for folder in folders])
    assert 20 <= sent <= 40  # with those that were under way


async def test_links_that_cannot_be_followed(box: AsyncSandbox, tmp_path: Path) -> None:
    source = tmp_path / "tree"
    (source / "deep").mkdir(parents=True)
    link = source / "deep" / "link"
    for target, error in (("nowhere", "leads to nowhere, which does not exist"), ("..", "leads back to ")):
        link.symlink_to(target)
        with pytest.raises(OSError, match=error) as failed:
            await box.files.upload(source, "/tmp/unfollowed")
        assert failed.value.filename == str(link)
        assert not await box.files.exists("/tmp/unfollowed")
        link.unlink()


async def test_directories_keep_their_modes(box: AsyncSandbox, tmp_path: Path) -> None:
    source = tmp_path / "tree"
    (source / "closed").mkdir(parents=True)
    (source / "closed" / "file").write_text("text")
    source.chmod(0o750)
    (source / "closed").chmod(0o2700)
    await box.files.mkdir("/tmp/modes/there", mode=0o711)
    await box.files.upload(source, "/tmp/modes/new/")
    await box.files.upload(source, "/tmp/modes/there")
    modes = [(await box.files.stat(f"/tmp/modes/{path}")).mode for path in ("new", "new/closed", "there")]
    assert modes == ["0750", "2700", "0711"]
