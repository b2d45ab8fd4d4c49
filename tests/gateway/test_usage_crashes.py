"""Whenever a gateway dies, the next one on its directory counts each sandbox once, to the time that its records say."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_gateway.core.usage import Document
from sandlot_gateway.core.usage_source import Source
from sandlot_gateway.directory import Directory
from sandlot_gateway.sandboxes import Sandbox, Spec
from sandlot_gateway.usage.accounts import Accounts
from sandlot_gateway.usage.files import FilesOnly, FileStore

BEGIN = 1.8e9 - 1000


class Died(Exception):
    """Not an error that a gateway handles."""


class DyingStore(FileStore):
    """Dies before or after it writes, as told."""

    dies: str | None = None

    async def change(self, source: Source, change: Callable[[Document], Document | None]) -> None:
        if self.dies == "before":
            raise Died
        await super().change(source, change)
        if self.dies == "after":
            raise Died


class Life:
    """One directory, the sandboxes that live, and gateway after gateway."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = BEGIN
        self.live: dict[SandboxId, Sandbox] = {}
        self.expected = 0.0
        self.made = 0
        self.start()

    def start(self) -> None:
        self.source = FilesOnly(self.path / "days")
        self.source.store = self.store = DyingStore(self.path / "days")
        self.directory = Directory(
            clock=lambda: self.now,
            ran=lambda sandbox: self.accounts.ran(sandbox),
            ended=lambda sandbox: self.accounts.ended(sandbox),
        )
        self.accounts = Accounts(
            self.path, directory=self.directory, source=self.source, keep=90, clock=lambda: self.now
        )
        self.accounts.open()
        for sandbox in self.live.values():
            self.directory.add(sandbox)
            self.directory.running(sandbox, address="", token="")

    def die(self) -> None:
        """All that is in memory is gone."""
        self.accounts._journal.close()
        self.start()

    def create(self) -> None:
        self.made += 1
        name = f"{self.made:016x}"
        spec = Spec(name=name, image="host", cpu_cores=2.0, run=f"r{self.made % 3}")
        sandbox = Sandbox(SandboxId(f"sb-{name}"), "alpha", spec, created_at=self.now, updated_at=self.now)
        sandbox.started_at, sandbox.instance_id = self.now, InstanceId(f"i-{name}")
        self.live[sandbox.id] = sandbox
        self.directory.add(sandbox)
        self.directory.running(sandbox, address="", token="")

    def end(self) -> None:
        if self.live:
            _, sandbox = self.live.popitem()
            self.directory.end(sandbox, verdict="deleted")
            self.expected += (self.now - (sandbox.started_at or 0.0)) * 2.0

    async def fold(self, dies: str | None = None) -> None:
        self.store.dies = dies
        try:
            await self.accounts.fold()
        except Died:
            self.die()
        self.store.dies = None

    async def check(self) -> None:
        totals = await self.accounts.between(BEGIN, self.now + 1)
        running = sum((self.now - (sandbox.started_at or 0.0)) * 2.0 for sandbox in self.live.values())
        assert sum(one.sandboxes for one in totals.rows.values()) == self.made
        found = sum(one.core_seconds for one in totals.rows.values())
        assert found == pytest.approx(self.expected + running, abs=0.01)


STEPS = st.sampled_from(
    ["create", "create", "end", "end", "wait", "long", "fold", "fold before", "fold after", "die"]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_every_sandbox_counts_once_whenever_the_gateway_dies(steps: list[str]) -> None:
    async def live() -> None:
        with tempfile.TemporaryDirectory(prefix="su-") as directory:
            life = Life(Path(directory))
            for step in steps:
                match step.split():
                    case ["create"]:
                        life.create()
                    case ["end"]:
                        life.end()
                    case ["wait"]:
                        life.now += 7.25
                    case ["long"]:
                        life.now += 90_000.5
                    case ["fold"]:
                        await life.fold()
                    case ["fold", dies]:
                        await life.fold(dies)
                    case _:
                        life.die()
                await life.check()
            life.die()
            await life.check()
            life.accounts._journal.close()

    asyncio.run(live())


async def test_one_whose_end_no_one_saw_ends_when_it_is_missed(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.create()
    began = life.now
    life.live.clear()
    life.die()
    life.now += 100.0
    await life.fold()
    life.now += 1000.0
    totals = await life.accounts.between(BEGIN, life.now)
    assert sum(one.seconds for one in totals.rows.values()) == pytest.approx(100.0)
    assert began == BEGIN
    life.accounts._journal.close()


async def test_documents_are_kept_for_their_days(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    for day in (100, 101, 102):
        await store.change(Source(day, "a"), lambda there: Document([1]))
    await store.drop_before(101)
    assert sorted(source.day for source in await store.load(since=0)) == [101, 102]
