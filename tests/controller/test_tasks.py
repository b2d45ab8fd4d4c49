"""Background tasks: one per key, and none that outlives its owner."""

from __future__ import annotations

import asyncio

from sandlot_controller.act.tasks import Tasks


async def test_a_key_has_one_task_at_a_time() -> None:
    tasks, done = Tasks(), asyncio.Event()
    ran: list[str] = []

    async def work(name: str) -> None:
        ran.append(name)
        await done.wait()

    assert tasks.spawn("a", work("first"))
    assert not tasks.spawn("a", work("second"))
    assert tasks.spawn("b", work("third"))
    await tasks.wait(seconds=0)
    assert ran == ["first", "third"]
    await tasks.close()
    assert len(tasks) == 0


async def test_news_after_the_end_start_nothing() -> None:
    tasks, ran = Tasks(), asyncio.Event()

    async def work() -> None:
        ran.set()

    await tasks.close()
    assert not tasks.spawn("late", work())
    await asyncio.sleep(0)
    assert not ran.is_set()
