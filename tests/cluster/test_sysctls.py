"""The host's kernel settings come back as they were before the first of several starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import sysctls


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    root = tmp_path / "sys"
    for name in sysctls.NAMES[:3]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("1\n")
    return root


def test_settings_come_back(proc: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    sysctls.save(root=proc, state=state)
    (proc / sysctls.NAMES[0]).write_text("99\n")
    sysctls.restore(root=proc, state=state)
    assert (proc / sysctls.NAMES[0]).read_text().strip() == "1"


def test_a_start_after_a_crash_does_not_take_the_changed_value_for_the_hosts(
    proc: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    sysctls.save(root=proc, state=state)
    (proc / sysctls.NAMES[0]).write_text("99\n")
    sysctls.save(root=proc, state=state)
    sysctls.restore(root=proc, state=state)
    assert (proc / sysctls.NAMES[0]).read_text().strip() == "1"


def test_nothing_is_written_without_a_record(proc: Path, tmp_path: Path) -> None:
    (proc / sysctls.NAMES[0]).write_text("99\n")
    sysctls.restore(root=proc, state=tmp_path / "state")
    assert (proc / sysctls.NAMES[0]).read_text().strip() == "99"
