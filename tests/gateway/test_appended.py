"""Lines that a full disk cuts off: the next ones, once there is room, are whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_contract.statuses import Status
from sandlot_gateway.archive import Archive
from sandlot_gateway.core.usage import Stay
from sandlot_gateway.sandboxes import Sandbox, Spec
from sandlot_gateway.usage.journal import Journal


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes of each next write there is room for."""
    room: list[int] = []
    write = os.write

    def written(fd: int, data: bytes) -> int:
        ours = os.readlink(f"/proc/self/fd/{fd}").startswith(str(tmp_path))
        return write(fd, data[: room.pop(0) if room and ours else len(data)])

    monkeypatch.setattr("os.write", written)
    return room


def test_the_record_after_one_that_was_cut_off_is_kept(tmp_path: Path, full: list[int], caplog) -> None:
    now = 1_000_000.0
    archive = Archive(tmp_path, keep=100.0, limit=9, clock=lambda: now)
    for number in range(3):
        full += [30] if number == 1 else []
        archive.append(
            Sandbox(
                id=SandboxId(f"sb-{number}"),
                tenant="t",
                spec=Spec(name="n", image="host"),
                created_at=now,
                updated_at=now,
                status=Status.TERMINATED,
                ended_at=now,
            )
        )
    archive.close()
    assert caplog.text.count("No space left on device") == 1
    loaded, _ = archive.load()
    assert [one.id for one in loaded] == ["sb-0", "sb-2"]


def test_the_claim_after_one_that_was_cut_off_is_counted_after_a_restart(
    tmp_path: Path, full: list[int], caplog
) -> None:
    def journal() -> Journal:
        made = Journal(tmp_path)
        made.load()
        return made

    one = journal()
    for number in range(3):
        full += [30] if number == 1 else []
        one.note_claimed(
            Stay(SandboxId(f"sb-{number}"), "t", "", 1.0, 1.0, 1.0, 0, 1000.0, InstanceId("i-1"))
        )
    one.close()
    assert caplog.text.count("No space left on device") == 1
    assert list(journal().claimed) == ["sb-0", "sb-2"]
