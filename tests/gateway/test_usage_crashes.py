"""Whenever a gateway dies, the next one on its directory counts each sandbox once, to the time that its records say."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sandlot_gateway.core.backend import BackendError
from sandlot_gateway.core.usage import Document, Stay, day_of
from sandlot_gateway.core.usage_source import Source
from sandlot_gateway.usage.accounts import Accounts
from sandlot_gateway.usage.files import FilesOnly, FileStore
from sandlot_gateway.usage.sums import TooManyGroups

from tests.gateway.usage_life import BEGIN, Life, days, sums

STEPS = st.sampled_from(
    [
        "create",
        "create",
        "end",
        "end",
        "wait",
        "long",
        "fold",
        "fold early",
        "fold before",
        "fold after",
        "die",
    ]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=25))
@example(["create", "wait", "end", "fold after", "fold"])
@example(["create", "wait", "end", "fold early", "fold"])
@example(["create", "wait", "end", "fold before", "die", "fold", "create", "end", "fold"])
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
    assert sum(one.seconds for one in await sums(life.accounts, life.now)) == pytest.approx(100.0)
    assert began == BEGIN
    life.accounts._journal.close()


class RefusingStore(FileStore):
    """Refuses the next `refuses` writes of a day's document."""

    day = 0
    refuses = 0

    async def change(self, source: Source, change: Callable[[Document], Document | None]) -> None:
        if source.day == self.day and self.refuses:
            self.refuses -= 1
            raise BackendError("too big")
        await super().change(source, change)


async def test_a_document_that_is_refused_keeps_back_no_other_and_loses_nothing(tmp_path: Path) -> None:
    life = Life(tmp_path)
    store = life.source.store = RefusingStore(tmp_path / "days")
    store.day, store.refuses = day_of(BEGIN), 2

    async def count() -> None:
        life.create()
        life.now += 60.0
        life.end()
        await life.accounts.fold()

    await count()
    # The next is of the same day, and must not overtake the first, which is refused again.
    await count()
    await life.check()
    life.now += 90_000.0
    store.refuses = 1
    await count()
    assert await days(store) == [day_of(life.now)]
    await life.check()
    await life.accounts.fold()
    await life.check()
    assert life.accounts._journal.batches == []
    life.accounts._journal.close()


class WatchedStore(FileStore):
    """Notes how many answers read at once, and whether the event loop's thread does."""

    now = most = 0
    threads: ClassVar[set[int]] = set()

    async def load(self, *, since: int, each: Callable[[Source, Document], None]) -> None:
        def noted(source: Source, document: Document) -> None:
            self.threads.add(threading.get_ident())
            each(source, document)

        self.now += 1
        self.most = max(self.most, self.now)
        await super().load(since=since, each=noted)
        self.now -= 1


async def test_answers_are_made_beside_the_event_loop_and_one_at_a_time(tmp_path: Path) -> None:
    life = Life(tmp_path)
    store = life.source.store = WatchedStore(tmp_path / "days")
    for _ in range(2):
        life.create()
        life.now += 90_000.0
        life.end()
        await life.fold()
    await asyncio.gather(*(life.check() for _ in range(4)))
    assert store.most == 1
    assert store.threads
    assert threading.get_ident() not in store.threads
    with pytest.raises(TooManyGroups):
        await life.accounts.between(BEGIN, life.now, group=lambda key: key.hour, most=2)
    none = await life.accounts.between(BEGIN, life.now, group=lambda key: 0, tenant="other", most=1)
    assert none == {}
    life.accounts._journal.close()


class AllRecorded(FilesOnly):
    """A backend that writes a record of every sandbox."""

    def has_record(self, stay: Stay) -> bool:
        return True


async def test_the_journal_stays_short_where_records_count_all(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.accounts = Accounts(
        tmp_path,
        directory=life.directory,
        source=AllRecorded(tmp_path / "days"),
        keep=90,
        clock=lambda: life.now,
    )
    life.accounts.open()
    life.create()  # and this one lives
    for _ in range(4):
        for _ in range(2_000):
            life.create()
            life.end()
        await life.accounts.fold()
    assert (tmp_path / "journal.jsonl").stat().st_size < 1_000_000  # all lines are 2.2 MB
    life.die()
    assert len(life.accounts._journal.claimed) == 1
    life.accounts._journal.close()


async def test_a_journal_lost_in_a_power_cut_takes_nothing_from_later_sandboxes(tmp_path: Path) -> None:
    life = Life(tmp_path)
    for _ in range(3):
        life.create()
        life.now += 60.0
        life.end()
        await life.fold()
    (tmp_path / "journal.jsonl").unlink()
    life.die()
    life.create()
    life.now += 60.0
    life.end()
    await life.fold()
    await life.check()
    life.accounts._journal.close()


async def test_documents_are_kept_for_their_days(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    for day in (100, 101, 102):
        await store.change(Source(day, "a"), lambda there: Document([1]))
    await store.drop_before(101)
    assert await days(store) == [101, 102]
