"""Runs of several tenants and gateways by a clock of the test: none ends another's, and none is held up by another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from sandlot_contract.ids import SandboxId
from sandlot_gateway.backends.local.runs import LocalRuns
from sandlot_gateway.core.backend import Unavailable
from sandlot_gateway.core.runs import Change, Lease, RunId, RunRequest
from sandlot_gateway.directory import Directory
from sandlot_gateway.engine.run_limit import MOST, TooManyRuns
from sandlot_gateway.engine.runs import Runs
from sandlot_gateway.sandboxes import Sandbox, Spec

ONE, OTHER = RunId("one"), RunId("other")


class Store(LocalRuns):
    """Leases in a file, by a clock that the test sets; each answer takes `slow` s.

    `stuck` cannot be written, and `unreadable` cannot be read either. `passed`: is called when a read of all has passed
    the place of what begins now.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, clock=lambda: self.time)
        self.time = 1e9
        self.slow = 0.0
        self.stuck: RunId | None = None
        self.unreadable: RunId | None = None
        self.passed: Callable[[], Awaitable[object]] | None = None

    async def all(self, *, answered: Callable[[], object] = lambda: None) -> list[Lease]:
        found = [lease for lease in await super().all() if lease.id != self.unreadable]
        passed, self.passed = self.passed, None
        for _ in range(2):
            self.time += self.slow
            answered()
            if passed is not None:
                await passed()
                passed = None
        return found

    async def find(self, tenant: str, run_id: RunId) -> Lease | None:
        if run_id == self.unreadable:
            raise Unavailable("unreadable")
        return await super().find(tenant, run_id)

    async def change(self, tenant: str, run_id: RunId, change: Change) -> Lease | None:
        if run_id in (self.stuck, self.unreadable):
            raise Unavailable("stuck")
        await asyncio.sleep(0)  # as with a request: others go on meanwhile
        return await super().change(tenant, run_id, change)


class Gateway:
    """The runs of one gateway, which looks each second."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.directory = Directory(clock=store.now)
        self.ended: list[SandboxId] = []
        self.runs = Runs(store, directory=self.directory, end=self._end, keep=3600.0)

    def _end(self, sandbox: Sandbox, verdict: str, message: str) -> None:
        self.ended.append(sandbox.id)
        self.directory.end(sandbox, verdict=verdict)

    def add(self, tenant: str, run: RunId, epoch: int, *, age: float = 0.0) -> SandboxId:
        spec = Spec(name="n", image="host", run=run, run_epoch=epoch)
        at = self.store.now() - age
        sandbox = Sandbox(
            id=SandboxId(f"sb-{tenant}-{run}"), tenant=tenant, spec=spec, created_at=at, updated_at=at
        )
        self.directory.add(sandbox)
        return sandbox.id

    async def look(self, seconds: int) -> None:
        for _ in range(seconds):
            await self.runs.look()
            self.store.time += 1.0


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs.json")


async def test_a_run_that_another_gateway_has_just_begun_lives_while_others_begin_and_end(
    store: Store,
) -> None:
    here, there = Gateway(store), Gateway(store)
    await here.look(65)  # of which the last is some seconds old
    lease = await there.runs.begin("b", OTHER, RunRequest("theirs", 60.0))
    here.add("b", OTHER, lease.epoch, age=3600.0)  # by its machine's clock
    own = await here.runs.begin("a", ONE, RunRequest("ours", 60.0))
    mine = here.add("a", ONE, own.epoch)
    await here.runs.finish("a", ONE, own.epoch)
    assert here.ended == [mine]


async def test_the_sandboxes_of_a_run_whose_lease_is_gone_end_a_minute_later(store: Store) -> None:
    here = Gateway(store)
    await here.look(1)
    lost = here.add("a", ONE, 1, age=3600.0)
    await here.look(60)
    assert here.ended == []
    await here.look(40)
    assert here.ended == [lost]


async def test_creates_of_runs_at_once_keep_to_the_limit(store: Store) -> None:
    here = Gateway(store)
    over = await here.runs.begin("a", ONE, RunRequest("h", 60.0))
    await here.runs.finish("a", ONE, over.epoch)
    answers = await asyncio.gather(
        *(here.runs.begin("a", RunId(f"r{number}"), RunRequest("h", 60.0)) for number in range(MOST + 5)),
        return_exceptions=True,
    )
    assert sum(isinstance(answer, TooManyRuns) for answer in answers) == 5
    assert len(await store.all()) == MOST
    assert await here.runs.begin("b", ONE, RunRequest("h", 60.0))


async def test_a_lease_that_cannot_be_written_and_slow_answers_hold_up_no_other_end(store: Store) -> None:
    here = Gateway(store)
    for run in (ONE, OTHER):
        lease = await here.runs.begin("a", run, RunRequest("h", 5.0))
        here.add("a", run, lease.epoch)
    store.stuck, store.slow = ONE, 2.5
    for _ in range(4):
        try:
            await here.look(1)
        except Unavailable:
            store.time += 1.0
    assert here.ended == ["sb-a-other"]


async def test_a_lease_that_becomes_readable_again_has_its_whole_grace(store: Store) -> None:
    here = Gateway(store)
    lease = await here.runs.begin("a", ONE, RunRequest("h", 10.0))
    mine = here.add("a", ONE, lease.epoch)
    await here.look(2)
    store.unreadable = ONE
    await here.look(2)
    upgraded = Gateway(store)  # which never could read it
    upgraded.add("a", ONE, lease.epoch)
    gateways = here, upgraded
    for gateway in gateways:
        await gateway.look(20)
    store.unreadable = None
    # One learns of it by a request, the other one by its look.
    assert (await here.runs.find("a", ONE)).active
    for _ in range(8):
        for gateway in gateways:
            await gateway.runs.look()
        store.time += 1.0
    assert (await store.all())[0].active
    assert not here.ended
    assert not upgraded.ended
    await here.look(8)
    assert here.ended == [mine]


async def test_a_run_that_begins_during_a_read_is_lost_after_its_grace(store: Store) -> None:
    here, there = Gateway(store), Gateway(store)
    await here.runs.begin("b", OTHER, RunRequest("h", 3600.0))  # it reads each second
    await here.look(2)
    store.slow, store.passed = 2.5, lambda: there.runs.begin("a", ONE, RunRequest("h", 20.0))
    await here.look(1)
    store.slow = 0.0
    await here.look(30)
    lease = await here.runs.find("a", ONE)
    assert lease.finished_at is not None
    assert lease.finished_at - lease.began_at < 22.0
