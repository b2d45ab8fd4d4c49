"""The journal of ops on a disk that is full for a while."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from sandlot_sidecar.server import journal as journals
from sandlot_sidecar.server.journal import Journal


def test_a_disk_that_is_full_at_a_rotation_ends_no_later_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "ROTATE_AT", 10)
    journal = Journal(str(tmp_path))

    def fail(path: str, flags: int, mode: int) -> int:
        raise OSError(errno.ENOSPC, "no space is left")

    journal.write("+", "first")
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", fail)
        journal.write("+", "second")
    # It may get the number of the descriptor that the journal had.
    other = os.open(tmp_path / "other", os.O_CREAT | os.O_RDWR)
    try:
        journal.write("-", "first")
        assert os.fstat(other).st_size == 0
    finally:
        os.close(other)
    journal.close()
    lost, ended = Journal(str(tmp_path)).load()
    assert "first" in ended
    assert "second" in lost


def test_the_line_after_one_that_a_full_disk_cut_off_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(str(tmp_path))
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: write(fd, data[:3]))
        journal.write("+", "first")
    journal.write("+", "second")
    journal.close()
    assert "second" in Journal(str(tmp_path)).load()[0]
