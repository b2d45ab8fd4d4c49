"""The records of ended sandboxes on disk."""

from __future__ import annotations

import os
from pathlib import Path

from sandlot_contract.statuses import Status
from sandlot_gateway.archive import Archive
from sandlot_gateway.sandboxes import Sandbox, Spec


def test_old_records_go_and_torn_lines_are_left_out(tmp_path: Path) -> None:
    now = 1_000_000.0

    def ended(number: int) -> Sandbox:
        one = Sandbox(
            id=f"sb-{number}",
            tenant="t",
            spec=Spec(name="n", image="host"),
            created_at=now,
            updated_at=now,
            status=Status.TERMINATED,
            ended_at=now,
        )
        archive.append(one)
        return one

    archive = Archive(tmp_path, keep=100.0, limit=3, clock=lambda: now)
    for number in range(5):
        ended(number)
    archive.close()
    (segment,) = tmp_path.glob("*.jsonl")
    with segment.open("ab") as file:
        file.write(b'{"id": "sb-\xff"}\n{"id": "sb-torn", "ten')
    loaded, _ = archive.load()
    assert [one.id for one in loaded] == ["sb-2", "sb-3", "sb-4"]
    os.utime(segment, (now - 200, now - 200))
    now += 150
    ended(9)
    loaded, _ = archive.load()
    assert [one.id for one in loaded] == ["sb-9"]
    assert not segment.exists()
    archive.close()
