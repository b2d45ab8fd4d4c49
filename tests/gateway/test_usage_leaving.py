"""A gateway that leaves counts its last sandboxes once, whatever other gateways write and wherever its time runs out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_gateway.backends.kubernetes.usage_store import ConfigMapStore
from sandlot_gateway.core.backend import UsageChanged
from sandlot_gateway.core.usage import Document, Stay, day_of
from sandlot_gateway.core.usage_source import RecordedStay, Source, UsageStore
from sandlot_gateway.directory import Directory
from sandlot_gateway.sandboxes import Sandbox, Spec
from sandlot_gateway.usage.accounts import Accounts, stay_of
from sandlot_gateway.usage.early import RECORDS
from sandlot_gateway.usage.files import FileStore
from sandlot_kube.client import KubeClient

from tests.gateway.test_usage_records import WithLateRecords
from tests.gateway.usage_life import BEGIN, sums
from tests.kube.apiserver import ApiServer
from tests.waiting import SECONDS


class Told(WithLateRecords):
    def has_record(self, stay: Stay) -> bool:
        return any(one.stay == stay for one in self.stays)


class Leaving:
    """A gateway, and a sandbox of it that has just ended."""

    def __init__(self, path: Path, store: UsageStore, *, name: str = "a", begin: float = BEGIN) -> None:
        self.now = begin
        self.path = path / name
        self.source = Told(path)
        self.source.store = store
        self.accounts = self.open()
        sandbox = Sandbox(
            SandboxId(f"sb-{name}"), "t", Spec(name="x", image="host"), created_at=begin, updated_at=begin
        )
        sandbox.counted_by = self.accounts.name
        sandbox.started_at, sandbox.instance_id = begin, InstanceId(f"i-{name}")
        self.accounts.ran(sandbox)
        self.now += 5.0
        sandbox.finish("deleted", at=self.now, message=None)
        self.accounts.ended(sandbox)
        self.sandbox = sandbox

    def open(self) -> Accounts:
        directory = Directory(clock=lambda: self.now)
        accounts = Accounts(
            self.path, directory=directory, source=self.source, keep=90, clock=lambda: self.now
        )
        accounts.open()
        return accounts


class Busy(FileStore):
    """Other gateways change the sums of records at the same moment, so many times."""

    changes = 0

    async def change(self, source: Source, change: Callable[[Document], Document | None]) -> None:
        if source.name == RECORDS and self.changes:
            self.changes -= 1
            await asyncio.sleep(0)
            raise UsageChanged("by others")
        await super().change(source, change)


@pytest.mark.parametrize(("changes", "in_records"), [(20, True), (1_000_000, False)])
async def test_conflicts_with_other_gateways_lose_nothing(
    tmp_path: Path, changes: int, in_records: bool
) -> None:
    store = Busy(tmp_path / "days")
    one = Leaving(tmp_path, store)
    store.changes = changes
    # Half of it is for conflicts: of those that end the last comes in time, however slow the machine is.
    await one.accounts.close(timeout=SECONDS if in_records else 1.0)
    written: list[str] = []
    await store.load(since=0, each=lambda source, document: written.append(source.name))
    assert written == [RECORDS if in_records else one.accounts.name]
    for accounts in (one.open(), Leaving(tmp_path, store, name="other").accounts):
        found = await sums(accounts, one.now)
        assert sum(row.sandboxes for row in found) == (1 if accounts.name == one.accounts.name else 2)
        accounts._journal.close()


class Stuck(FileStore):
    """Changes a document before or after its time runs out, or never."""

    writes = True
    stuck = True

    async def change(self, source: Source, change: Callable[[Document], Document | None]) -> None:
        if self.writes or not self.stuck:
            await super().change(source, change)
        if self.stuck:
            await asyncio.Event().wait()


@pytest.mark.parametrize("late", [False, True], ids=["without record", "with one"])
@pytest.mark.parametrize("writes", [False, True], ids=["not written", "written"])
async def test_the_next_process_repeats_a_write_whose_answer_did_not_come(
    tmp_path: Path, writes: bool, late: bool
) -> None:
    store = Stuck(tmp_path / "days")
    one = Leaving(tmp_path, store)
    store.writes = writes
    await one.accounts.close(timeout=0.1)
    store.stuck = False
    again = one.open()
    stay = stay_of(one.sandbox)
    assert stay is not None
    if late:
        one.source.stays = (RecordedStay(stay, one.now, int(one.now // 60)),)
    for _ in range(13):
        assert [row.sandboxes for row in await sums(again, one.now)] == [1]
        await again.fold()
        one.now += 60.0
    assert again._journal.early == {}
    again._journal.close()


async def test_a_record_of_the_next_day_does_not_count_again(tmp_path: Path) -> None:
    midnight = 1.8e9 // 86_400 * 86_400
    one = Leaving(tmp_path, FileStore(tmp_path / "days"), begin=midnight - 5.5)
    await one.accounts.close(timeout=10.0)
    stay = stay_of(one.sandbox)
    assert stay is not None
    one.source.stays = (RecordedStay(stay, midnight, int(midnight // 60)),)
    one.path = tmp_path / "b"
    other = one.open()
    for _ in range(13):
        one.now += 60.0
        await other.fold()
    assert [row.sandboxes for row in await sums(other, one.now, since=midnight - 60)] == [1]
    other._journal.close()


@pytest.mark.programs
async def test_gateways_that_leave_together_all_get_their_turn(apiserver: ApiServer, tmp_path: Path) -> None:
    namespace = await asyncio.to_thread(apiserver.namespace, "usage")
    client = KubeClient(apiserver.access(namespace=namespace))
    store = ConfigMapStore(client, namespace=namespace)
    now = time.time()
    those = [Leaving(tmp_path, store, name=f"g{number}", begin=now) for number in range(8)]
    await asyncio.gather(*(one.accounts.close(timeout=SECONDS) for one in those))
    found: dict[Source, Document] = {}
    await store.load(since=day_of(now), each=found.__setitem__)
    assert [source.name for source in found] == [RECORDS]
    assert sum(row.amounts.sandboxes for document in found.values() for row in document.rows) == 8
    await client.close()


async def test_a_failure_that_nobody_foresaw_does_not_end_the_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sandlot_gateway.usage.accounts._FOLD_EVERY", 0.001)
    one = Leaving(tmp_path, FileStore(tmp_path / "days"))
    failures = [ZeroDivisionError("in a fold")]
    folded = asyncio.Event()

    async def fold(**options: object) -> None:
        if failures:
            raise failures.pop()
        folded.set()

    monkeypatch.setattr(one.accounts, "fold", fold)
    one.accounts.start()
    await asyncio.wait_for(folded.wait(), SECONDS)
    await one.accounts.close(timeout=SECONDS)
    assert "in a fold" in caplog.text
