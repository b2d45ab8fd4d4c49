"""Names that a download refuses: those that lead elsewhere, and two that are one file here."""

from __future__ import annotations

from pathlib import Path

import pytest
from sandlot import FileConflict, FileInfo
from sandlot._local_targets import DownloadTarget, safe_name


def entry(name: str) -> FileInfo:
    return FileInfo(
        path=f"/app/{name}", type="file", size=1, mode="0644", uid=0, gid=0, user=None, group=None, mtime=0.0
    )


@pytest.mark.parametrize(
    "name",
    ["..\\x", "a\\b", "\\x", "C:", "C:x", "x:stream", "x.", "x ", ".. ", ". ", "...", "\\\\host\\share\\x"],
)
def test_names_that_lead_elsewhere_on_windows(name: str) -> None:
    assert safe_name(entry(name), windows=False) == name
    with pytest.raises(FileConflict, match="is not a plain file name"):
        safe_name(entry(name), windows=True)


@pytest.mark.parametrize("name", ["x", ".x", "a b", "x.tar.gz", "ü", "-"])
def test_plain_names(name: str) -> None:
    assert safe_name(entry(name), windows=True) == safe_name(entry(name), windows=False) == name


@pytest.mark.parametrize("name", [".", "..", "\0"])
@pytest.mark.parametrize("windows", [False, True])
def test_names_that_are_plain_nowhere(name: str, windows: bool) -> None:
    with pytest.raises(FileConflict):
        safe_name(entry(name), windows=windows)


def test_two_names_that_are_one_file_or_directory_here(tmp_path: Path) -> None:
    """As "Read" and "read" are where case does not count: here, they are the same name."""
    (tmp_path / "read").write_text("an earlier copy")
    targets = DownloadTarget()
    targets.top_directory(tmp_path, "0755")
    with targets.file(tmp_path / "read", "0644", top=False) as file:
        file.write(b"first")
    with (
        pytest.raises(FileConflict, match="two names of the sandbox are one here"),
        targets.file(tmp_path / "read", "0644", top=False) as file,
    ):
        file.write(b"second")
    targets.directory(tmp_path / "sub", "0755")
    with pytest.raises(FileConflict, match="two names of the sandbox are one here"):
        targets.directory(tmp_path / "sub", "0755")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["read", "sub"]
    assert (tmp_path / "read").read_text() == "first"
