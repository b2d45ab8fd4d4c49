"""The measurement of a store of checkpoints: it delays no writer, no tenant and no other thread."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sandlot_gateway.checkpoints.errors import StoreError
from sandlot_gateway.checkpoints.quota import Quota
from sandlot_gateway.checkpoints.rules import StoreFull, StoreLimits
from sandlot_gateway.checkpoints.store import Store
from sandlot_gateway.checkpoints.threads import StoreThreads
from sandlot_gateway.checkpoints.upkeep import Upkeep

from tests.gateway.checkpoint_documents import kept
from tests.waiting import until, wait_until


def test_a_slow_measurement_delays_no_write_and_what_is_written_meanwhile_counts() -> None:
    measuring, go_on = threading.Event(), threading.Event()
    go_on.set()

    def measure() -> list[tuple[str, int]]:
        measuring.set()
        assert go_on.wait(30)
        return [("a", 10)]

    quota = Quota(measure, limits=StoreLimits(total_bytes=100), every=0.0)
    assert quota.used() == 10
    go_on.clear()
    measuring.clear()
    with ThreadPoolExecutor(1) as threads:
        measured = threads.submit(quota.used)
        assert measuring.wait(30)
        quota.admit("a", 5)
        assert quota.usage() == {"a": 15}
        go_on.set()
        assert measured.result(30) == 15


def test_a_measurement_that_fails_fails_all_that_wait_for_it_and_the_next_one_works() -> None:
    answers: list[list[tuple[str, int]]] = []

    def measure() -> list[tuple[str, int]]:
        if not answers:
            raise StoreError("away")
        return answers[0]

    quota = Quota(measure, limits=StoreLimits(total_bytes=100), every=0.0)
    with pytest.raises(StoreError, match="away"):
        quota.usage()
    answers.append([("a", 100)])
    assert quota.usage() == {"a": 100}
    with pytest.raises(StoreFull):
        quota.admit("a", 1)


def test_a_store_that_cannot_be_measured_for_a_while_ends_no_write() -> None:
    is_away = False

    def measure() -> list[tuple[str, int]]:
        if is_away:
            raise StoreError("away")
        return [("a", 10)]

    quota = Quota(measure, limits=StoreLimits(total_bytes=100), every=0.0)
    assert quota.used() == 10
    is_away = True
    with pytest.raises(StoreError, match="away"):
        quota.used()
    quota.admit("a", 50)
    with pytest.raises(StoreError, match="away"):  # it may be full, or not
        quota.admit("a", 50)
    is_away = False
    assert quota.used() == 10


def test_a_measurement_that_failed_is_not_repeated_at_each_write() -> None:
    asked: list[float] = []

    def measure() -> list[tuple[str, int]]:
        asked.append(time.monotonic())
        if len(asked) > 1:
            raise StoreError("away")
        return []

    quota = Quota(measure, limits=StoreLimits(total_bytes=1 << 40), every=0.2)

    def has_failed() -> bool:
        quota.admit("a", 1)
        return len(asked) > 1

    quota.check("a", hint="")
    wait_until(has_failed)
    for _ in range(10):  # which may take as long as until the next
        quota.admit("a", 1)
    assert all(later - earlier >= 0.1 for earlier, later in itertools.pairwise(asked))


class _Slow(Store):
    """A directory whose measurement waits."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, limits=StoreLimits())
        self.go_on = threading.Event()
        self.asked = 0

    def usage(self) -> Mapping[str, int]:
        self.asked += 1
        assert self.go_on.wait(30)
        return super().usage()


async def test_tenants_that_ask_while_a_store_stalls_take_one_thread(tmp_path: Path) -> None:
    store = _Slow(tmp_path)
    made = kept(store, tenant="a")
    upkeep = Upkeep(store, threads=StoreThreads())
    assert await asyncio.gather(*(upkeep.used_by("a") for _ in range(50))) == [None] * 50
    assert store.asked == 1
    store.go_on.set()
    assert await until(lambda: upkeep.used_by("a")) == made.stored_bytes
    assert await upkeep.used_by("b") == 0
    store.go_on.clear()
    assert await upkeep.used_by("a") == made.stored_bytes  # as measured last
    store.go_on.set()
    await upkeep.close()


async def test_a_store_that_does_not_answer_keeps_no_other_work_waiting() -> None:
    threads, go_on = StoreThreads(), threading.Event()
    stalled = [threads.begun(go_on.wait, 30) for _ in range(100)]
    with pytest.raises(StoreError, match=r"does not answer within 0\.1 s: try again"):
        await threads.read(0.1, len, "")
    assert await asyncio.wait_for(asyncio.to_thread(len, "four"), 30) == 4
    go_on.set()
    await asyncio.gather(*stalled)
