"""Where backends keep records, each sandbox counts once: by its record, or by the gateway that claimed it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_gateway.core.usage import Stay
from sandlot_gateway.core.usage_source import RecordedStay
from sandlot_gateway.directory import Directory
from sandlot_gateway.sandboxes import Sandbox, Spec
from sandlot_gateway.usage.accounts import Accounts, stay_of
from sandlot_gateway.usage.files import FilesOnly

from tests.gateway.usage_life import BEGIN, sums


class Recorded(FilesOnly):
    """A backend whose records count everything."""

    stays: tuple[RecordedStay, ...] = ()
    all_here = False

    def recorded(self) -> tuple[RecordedStay, ...]:
        return self.stays


async def test_each_minute_of_the_records_counts_once_by_whichever_gateway(tmp_path: Path) -> None:
    source = Recorded(tmp_path / "days")
    gateways = [
        Accounts(tmp_path / name, directory=Directory(), source=source, keep=90, clock=lambda: BEGIN)
        for name in ("a", "b")
    ]
    for gateway in gateways:
        gateway.open()
    stays: list[RecordedStay] = []
    for number in range(4):
        begin, end = BEGIN - 5000, BEGIN - 3600 + 60 * number
        stay = Stay(SandboxId(f"sb-{number}"), "t", "", 1.0, 1.0, 1.0, 0, begin, InstanceId(f"i-{number}"))
        stays.append(RecordedStay(stay, end, int(end // 60)))
    for until in (0, 2, 4):
        source.stays = tuple(stays[:until])
        await asyncio.gather(*(gateway.fold() for gateway in gateways))
        for _ in range(2):
            for gateway in gateways:
                found = await sums(gateway, BEGIN, since=BEGIN - 9000)
                assert sum(one.sandboxes for one in found) == until
            source.stays = ()  # the controller deletes them
    for gateway in gateways:
        await gateway.close(timeout=10)


class WithLateRecords(Recorded):
    """Records appear within a minute after an end, and are counted after ten."""

    settles, records_settle = 60.0, 600.0


@pytest.mark.parametrize("late", [0, 1, 2], ids=["without record", "with one", "with one that is deleted"])
async def test_what_a_gateway_that_leaves_has_counts_once_though_a_record_appears(
    tmp_path: Path, late: int
) -> None:
    now = BEGIN
    source = WithLateRecords(tmp_path / "days")
    directory = Directory(clock=lambda: now)
    leaves, stays = (
        Accounts(tmp_path / name, directory=one, source=source, keep=90, clock=lambda: now)
        for name, one in (("a", directory), ("b", Directory()))
    )
    sandbox = Sandbox(SandboxId("sb-1"), "t", Spec(name="x", image="host"), created_at=now, updated_at=now)
    for gateway in (leaves, stays):
        gateway.open()
    sandbox.counted_by = leaves.name
    sandbox.started_at, sandbox.instance_id = now, InstanceId("i-1")
    leaves.ran(sandbox)
    now += 5.0
    sandbox.finish("deleted", at=now, message=None)
    leaves.ended(sandbox)
    await leaves.close(timeout=10)
    stay = stay_of(sandbox)
    assert stay is not None
    if late:  # another gateway had a webhook
        source.stays = (RecordedStay(stay, now, int(now // 60)),)
    for _ in range(15):
        assert [one.sandboxes for one in await sums(stays, now)] == [1]
        now += 60.0
        await stays.fold()
        if late == 2 and now > BEGIN + 700:
            source.stays = ()
    assert [one.seconds for one in await sums(stays, now)] == [5.0]
    await stays.close(timeout=10)
