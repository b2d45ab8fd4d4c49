"""Calls in threads that never return: they hold up neither their owner's close nor the end of the process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest
from sandlot_gateway.backends.local.threads import DaemonThreads

from tests.waiting import until

STUCK = """
import threading
from sandlot_gateway.backends.local.threads import DaemonThreads
DaemonThreads(1, name="stuck").submit(threading.Event().wait)
"""


async def test_calls_run_and_their_results_and_errors_are_told() -> None:
    threads = DaemonThreads(2, name="test")
    loop = asyncio.get_running_loop()
    results = await asyncio.gather(*(loop.run_in_executor(threads, pow, 2, n) for n in range(20)))
    assert results == [2**n for n in range(20)]
    with pytest.raises(ZeroDivisionError):
        await loop.run_in_executor(threads, divmod, 1, 0)
    assert await threads.close(timeout=60) == 0
    assert await threads.close(timeout=60) == 0


async def test_calls_that_have_begun_end_before_it_is_closed() -> None:
    threads = DaemonThreads(1, name="test")
    go_on = threading.Event()
    call = threads.submit(go_on.wait)
    closing = asyncio.create_task(threads.close(timeout=60))
    await asyncio.sleep(0)
    go_on.set()
    assert await closing == 0
    assert call.done()


async def test_a_call_that_does_not_end_is_counted() -> None:
    threads = DaemonThreads(2, name="test")
    go_on = threading.Event()
    stuck = threads.submit(go_on.wait)
    done = threads.submit(pow, 2, 3)

    async def is_counted() -> bool:  # the other thread has ended, which on a loaded machine takes its time
        return await threads.close(timeout=0.05) == 1

    await until(is_counted)
    assert done.result() == 8
    go_on.set()
    assert await threads.close(timeout=60) == 0
    assert stuck.done()


def test_one_that_is_stuck_does_not_hold_up_the_end_of_the_process() -> None:
    assert subprocess.run([sys.executable, "-c", STUCK], timeout=60, check=False).returncode == 0
