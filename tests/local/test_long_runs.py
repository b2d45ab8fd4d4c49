"""What a gateway does again and again goes on after it has failed once."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any, cast

import pytest
from sandlot_contract.ids import InstanceId
from sandlot_contract.template import Template
from sandlot_gateway.backends.local import keeper as keepers
from sandlot_gateway.backends.local import upkeep as upkeeps
from sandlot_gateway.backends.local.background import Background
from sandlot_gateway.backends.local.entries import Entry
from sandlot_gateway.backends.local.keeper import PoolKeeper
from sandlot_gateway.backends.local.layout import InstanceDir
from sandlot_gateway.backends.local.planner import Plan, Planner
from sandlot_gateway.backends.local.upkeep import Upkeep
from sandlot_gateway.core.backend import BackendError, Events
from sandlot_gateway.core.instances import Instance, PoolSpec

from tests.waiting import until


class Remover:
    def __init__(self) -> None:
        self.cleared: list[Path] = []

    def has_started(self, instance_id: InstanceId) -> bool:
        return True

    async def clear(self, directory: InstanceDir, record: object, *, search: bool) -> None:
        self.cleared.append(directory.path)


class Machine:
    """Lists its instances only every other time; all are remains of earlier ones."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.looks = 0

    def instance_dirs(self) -> list[InstanceDir]:
        self.looks += 1
        if self.looks % 2:
            raise OSError(errno.EIO, "Input/output error")
        return [InstanceDir(self._directory)]


async def test_upkeep_goes_on_when_a_part_of_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def bound_log(directory: InstanceDir) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(upkeeps, "bound_log", bound_log)
    remover, background = Remover(), Background()
    entry = Entry(
        Instance(InstanceId("i-0"), Template("host"), "", token=""),
        InstanceDir(tmp_path / "i-0"),
        cast(Any, None),
        began=0.0,
    )
    upkeep = Upkeep(
        {entry.instance.id: entry},
        background=background,
        remover=cast(Any, remover),
        layout=cast(Any, Machine(tmp_path / "i-1")),
        every=0.001,
        start_timeout=60.0,
    )
    background.spawn(upkeep.run(), name="upkeep")
    await until(lambda: len(remover.cleared) >= 2)
    await background.cancel_tasks()
    await background.close(timeout=60.0)
    assert "No space left on device" in caplog.text
    assert "Input/output error" in caplog.text


class FailsOnce(Planner):
    has_failed = False

    def plan(self, **options: Any) -> Plan:
        if not self.has_failed:
            self.has_failed = True
            raise ZeroDivisionError
        return super().plan(**options)


class NoInstances:
    def warm_count(self, name: str) -> int:
        return 0


async def test_pools_are_filled_after_a_plan_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(keepers, "_AGAIN", 0.01)
    started = asyncio.Event()

    async def start(spec: PoolSpec) -> Instance:
        started.set()
        raise BackendError("no")

    async def destroy(instance_id: InstanceId) -> None:
        pass

    keeper = PoolKeeper(planner=FailsOnce(), path=tmp_path / "pools.json", start=start, destroy=destroy)
    keeper.open(cast(Events, NoInstances()))
    await keeper.set(PoolSpec("a", Template("host"), 1))
    await asyncio.wait_for(started.wait(), 60)
    await keeper.close()
    assert "ZeroDivisionError" in caplog.text
