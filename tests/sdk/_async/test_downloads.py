"""Downloads of directories whose names code of the sandbox has chosen: what they write here, and what they leave alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from sandlot import AsyncSandbox, FileConflict, FileMissing, TransferProgress

from tests.sdk.service.faults import Fault
from tests.sdk.service.server import Service


@pytest.mark.parametrize("there", ["a directory's link", "a file's link", "a dangling link"])
async def test_a_link_of_this_machine_is_neither_followed_nor_replaced(
    box: AsyncSandbox, tmp_path: Path, there: str
) -> None:
    outside, back = tmp_path / "outside", tmp_path / "back"
    outside.mkdir()
    back.mkdir()
    (outside / "name").write_text("mine")
    link = back / ("sub" if there == "a directory's link" else "file")
    link.symlink_to(
        {"a directory's link": outside, "a file's link": outside / "name"}.get(there, outside / "none")
    )
    await box.files.write("/tmp/hostile/sub/name", "theirs")
    await box.files.write("/tmp/hostile/file", "theirs")
    with pytest.raises(FileConflict, match=f"{link.name}: is a link here"):
        await box.files.download("/tmp/hostile", back)
    assert link.is_symlink()
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("name", "mine")]
    assert not list(back.glob(".*"))


async def test_the_target_itself_may_be_a_link(box: AsyncSandbox, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    await box.files.write("/tmp/linked/sub/name", "text")
    await box.files.download("/tmp/linked", tmp_path / "link")
    assert (tmp_path / "real/sub/name").read_text() == "text"
    await box.files.download("/tmp/linked/sub/name", tmp_path / "link")
    assert (tmp_path / "real/name").read_text() == "text"


async def test_a_file_does_not_go_into_a_directory_of_its_name(box: AsyncSandbox, tmp_path: Path) -> None:
    await box.files.write("/tmp/kinds/src", "text")
    (tmp_path / "one/src").mkdir(parents=True)
    with pytest.raises(FileConflict, match="is a directory here"):
        await box.files.download("/tmp/kinds", tmp_path / "one")
    assert not list((tmp_path / "one/src").iterdir())
    await box.files.mkdir("/tmp/other/src")
    (tmp_path / "two").mkdir()
    (tmp_path / "two/src").write_text("mine")
    with pytest.raises(FileConflict, match="is no directory here"):
        await box.files.download("/tmp/other", tmp_path / "two")
    assert (tmp_path / "two/src").read_text() == "mine"


async def test_names_may_be_long_and_differ_only_in_case(box: AsyncSandbox, tmp_path: Path) -> None:
    names = {"n" * 250, "Read", "read", "back\\slash"}
    for name in names:
        await box.files.write(f"/tmp/names/{name}", name)
    (tmp_path / "back").mkdir()
    (tmp_path / "back/read").write_text("an earlier copy")
    await box.files.download("/tmp/names", tmp_path / "back")
    assert {path.name: path.read_text() for path in (tmp_path / "back").iterdir()} == {
        name: name for name in names
    }


async def test_what_has_gone_since_it_was_listed_is_left_out(
    faulty: AsyncSandbox, service: Service, tmp_path: Path
) -> None:
    for name in ("one", "two", "three", "sub/four"):
        await faulty.files.write(f"/tmp/gone/{name}", "text")
    missing: dict[str, object] = {"error": "not_found", "message": "no such file"}
    service.faults.append(Fault("/files", status=404, body=missing))
    seen: list[TransferProgress] = []
    assert await faulty.files.download("/tmp/gone", tmp_path / "file", progress=seen.append) == 12
    assert (seen[-1].bytes, seen[-1].total_bytes, seen[-1].files) == (12, 16, 3)
    assert len([path for path in (tmp_path / "file").rglob("*") if path.is_file()]) == 3
    listed = [Fault("/files/list") for _ in range(2)]  # the pages of the first directory
    service.faults.extend([*listed, Fault("/files/list", status=404, body=missing)])
    assert await faulty.files.download("/tmp/gone", tmp_path / "directory") == 12
    assert sorted(path.name for path in (tmp_path / "directory").iterdir()) == ["one", "three", "two"]
    service.faults.append(Fault("/files/list", status=404, body=missing))
    with pytest.raises(FileMissing):
        await faulty.files.download("/tmp/gone", tmp_path / "top")
    assert not (tmp_path / "top").exists()


async def test_modes_are_kept_without_set_id_bits(box: AsyncSandbox, tmp_path: Path) -> None:
    await box.files.write("/tmp/kept/closed/deep/tool", "text", mode=0o6755)
    for name, mode in (("closed/deep", 0o2511), ("closed", 0o500), (".", 0o750), ("there", 0o777)):
        await box.files.mkdir(f"/tmp/kept/{name}")
        await box.files.chmod(f"/tmp/kept/{name}", mode=mode)
    back = tmp_path / "back"
    (back / "there").mkdir(parents=True, mode=0o700)
    back.chmod(0o711)
    await box.files.download("/tmp/kept", back)
    await box.files.download("/tmp/kept", tmp_path / "new")

    def modes(top: Path) -> dict[str, int]:
        return {str(path.relative_to(top)): path.lstat().st_mode & 0o7777 for path in (top, *top.rglob("*"))}

    kept = {"closed": 0o500, "closed/deep": 0o511, "closed/deep/tool": 0o755}
    assert modes(back) == {**kept, ".": 0o711, "there": 0o700}
    assert modes(tmp_path / "new") == {**kept, ".": 0o750, "there": 0o777}
