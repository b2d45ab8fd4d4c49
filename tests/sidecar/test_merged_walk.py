"""A walk over several layers while the kernel deletes a directory of the uppermost one: what was deleted stays so."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from sandlot_sidecar.layer.selection import EVERYTHING
from sandlot_sidecar.layer.walk import Walk

pytestmark = pytest.mark.root


def test_a_directory_that_is_deleted_meanwhile_shows_nothing_of_the_layer_below(tmp_path: Path) -> None:
    """The kernel puts an empty directory in its place, then takes the deletions out of it (ovl_clear_empty)."""
    upper, lower, work = (tmp_path / name for name in ("upper", "lower", "work"))
    for path in (upper / "d", lower / "d", work):
        path.mkdir(parents=True)
    for name in ("a", "b", "kept"):
        (lower / "d" / name).write_text("of the layer below")
    for name in ("a", "b"):
        os.mknod(upper / "d" / name, stat.S_IFCHR, 0)
    found: dict[str, bool] = {}
    tops = [os.open(path, os.O_RDONLY) for path in (upper, lower)]
    try:
        for entry in Walk(tops, EVERYTHING):
            found[entry.path] = stat.S_ISCHR(entry.info.st_mode) and entry.info.st_rdev == 0
            if entry.path == "d/a":
                (upper / "d").rename(work / "d")
                (upper / "d").mkdir()
                for name in ("a", "b"):
                    (work / "d" / name).unlink()
    finally:
        for top in tops:
            os.close(top)
    assert found == {"d": False, "d/a": True, "d/b": True, "d/kept": False}


def test_a_directory_whose_deletions_go_before_they_are_listed_is_read_anew(tmp_path: Path) -> None:
    upper, lower, work = (tmp_path / name for name in ("upper", "lower", "work"))
    for path in (upper / "d", lower / "d", work):
        path.mkdir(parents=True)
    (lower / "d" / "gone").write_text("of the layer below")
    os.mknod(upper / "d" / "gone", stat.S_IFCHR, 0)

    class Replaced(Walk):
        """Deletes the directory after it was opened, once."""

        def _entry(self, directory: int, name: str, path: str):  # type: ignore[no-untyped-def]
            entry = super()._entry(directory, name, path)
            if path == "d" and not (work / "d").exists():
                (upper / "d").rename(work / "d")
                (work / "d" / "gone").unlink()
                os.mknod(upper / "d", stat.S_IFCHR, 0)
            return entry

    tops = [os.open(path, os.O_RDONLY) for path in (upper, lower)]
    try:
        found = [(entry.path, stat.S_ISCHR(entry.info.st_mode)) for entry in Replaced(tops, EVERYTHING)]
    finally:
        for top in tops:
            os.close(top)
    assert found == [("d", True)]
