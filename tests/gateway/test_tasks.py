"""Background tasks of a gateway: its stop does not wait for a thread that does not end."""

from __future__ import annotations

import asyncio
import threading

from sandlot_gateway.tasks import Tasks, in_thread


async def test_a_close_leaves_a_task_whose_thread_waits_for_a_stalled_volume() -> None:
    tasks, begun, answered = Tasks(), threading.Event(), threading.Event()

    def write() -> None:
        begun.set()
        answered.wait()

    task = tasks.spawn(in_thread(write))
    await asyncio.to_thread(begun.wait)
    try:
        async with asyncio.timeout(20):
            assert await tasks.close(end_within=0.01) == 1
        assert not task.done()  # its thread has its file still
    finally:
        answered.set()
    await asyncio.wait([task])
    assert task.cancelled()
