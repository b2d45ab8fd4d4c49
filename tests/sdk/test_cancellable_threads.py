"""Threads of the adapters' blocking calls: what becomes of a result that comes too late for its caller."""

from __future__ import annotations

import asyncio
import threading

import pytest
from sandlot.integrations._cancellable_threads import in_cancellable_thread


class Late:
    """A call that returns when it is told to, and what discards its result."""

    def __init__(self, error: Exception | None = None) -> None:
        self.began = threading.Event()
        self.returns = threading.Event()
        self.discarded = threading.Event()
        self._error = error

    def call(self) -> str:
        self.began.set()
        self.returns.wait(10)
        return "late"

    def discard(self, result: str) -> None:
        assert result == "late"
        self.discarded.set()
        if self._error is not None:
            raise self._error

    async def begin(self) -> asyncio.Task[str]:
        task = asyncio.create_task(in_cancellable_thread(self.call, discard=self.discard))
        await asyncio.to_thread(self.began.wait, 10)
        return task


async def test_a_failing_clean_up_is_logged_and_the_caller_stays_cancelled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    late = Late(OSError("no server"))
    task = await late.begin()
    task.cancel()
    late.returns.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert late.discarded.is_set()
    assert "no server" in caplog.text


def test_a_caller_that_is_cancelled_twice_leaves_nothing_when_its_loop_ends() -> None:
    late = Late()

    async def caller() -> None:
        task = await late.begin()
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
        asyncio.get_running_loop().call_later(0.05, late.returns.set)

    asyncio.run(caller())  # waits for its threads
    assert late.discarded.wait(10)


async def test_a_result_that_its_caller_gets_is_kept() -> None:
    late = Late()
    late.returns.set()
    assert await (await late.begin()) == "late"
    assert not late.discarded.is_set()
