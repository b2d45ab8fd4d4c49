"""Lives of gateways on one directory of usage: each dies wherever a test says, and the next one goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_gateway.core.usage import Amounts, Document
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


async def sums(accounts: Accounts, until: float, *, since: float = BEGIN) -> list[Amounts]:
    sums = await accounts.between(since, until + 1, group=lambda key: key, most=1_000)
    return [used.amounts for used in sums.values()]


async def days(store: FileStore) -> list[int]:
    found: list[int] = []
    await store.load(since=0, each=lambda source, document: found.append(source.day))
    return sorted(found)


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
        self.store = DyingStore(self.path / "days")
        self.source.store = self.store
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
        self.store.dies = "before" if dies == "early" else dies
        journal = self.path / "journal.jsonl"
        written = journal.read_bytes()
        try:
            await self.accounts.fold()
        except Died:
            if dies == "early":  # when the batch was written, and the journal not yet without it
                journal.write_bytes(written)
            self.die()
        self.store.dies = None

    async def check(self) -> None:
        found = await sums(self.accounts, self.now)
        running = sum((self.now - (sandbox.started_at or 0.0)) * 2.0 for sandbox in self.live.values())
        assert sum(one.sandboxes for one in found) == self.made
        assert sum(one.core_seconds for one in found) == pytest.approx(self.expected + running, abs=0.01)
