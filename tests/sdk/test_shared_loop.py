"""The loop that adapters of frameworks share: whose calls it runs, and what becomes of those of cancelled callers."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import subprocess
import sys
import threading

import pytest
from sandlot.integrations._shared_loop import on_shared_loop

from tests.waiting import SECONDS


async def here() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_callers_of_all_threads_share_one_loop() -> None:
    found: list[asyncio.AbstractEventLoop] = []
    threads = [
        threading.Thread(target=lambda: found.append(asyncio.run(on_shared_loop(here)))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert len(set(found)) == 1


async def test_a_call_has_the_context_and_raises_the_errors_of_its_caller() -> None:
    name = contextvars.ContextVar("name", default="none")
    name.set("caller's")

    async def failing() -> None:
        raise ValueError(name.get())

    with pytest.raises(ValueError, match="caller's"):
        await on_shared_loop(failing)


async def cancelled(call: asyncio.Task[str], began: threading.Event) -> None:
    await asyncio.to_thread(began.wait, 10)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_a_cancelled_caller_waits_for_the_clean_up_and_for_a_late_result() -> None:
    began = threading.Event()
    events: list[str] = []

    async def late() -> str:
        began.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            events.append("cleaned up")
        return "late"

    async def discard(result: str) -> None:
        await asyncio.sleep(0)
        events.append(f"discarded {result}")

    await cancelled(asyncio.create_task(on_shared_loop(late, discard=discard)), began)
    assert events == ["cleaned up", "discarded late"]


async def test_a_failing_clean_up_is_logged_and_the_caller_stays_cancelled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    began = threading.Event()

    async def late() -> str:
        began.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return "late"

    async def discard(result: str) -> None:
        raise OSError("no server")

    await cancelled(asyncio.create_task(on_shared_loop(late, discard=discard)), began)
    assert "no server" in caplog.text


async def test_work_may_go_on_to_its_end() -> None:
    began = threading.Event()
    events: list[str] = []

    async def last() -> str:
        began.set()
        await asyncio.sleep(0.05)
        events.append("deleted")
        return ""

    await cancelled(asyncio.create_task(on_shared_loop(last, to_the_end=True)), began)
    assert events == ["deleted"]


LEFT = """
import asyncio, logging, threading
from sandlot.integrations._shared_loop import _shared_loop

logging.getLogger("asyncio").setLevel("ERROR")  # -X dev warns of each step that takes 0.1 s, as on a busy machine
began = threading.Event()

async def work():
    try:
        began.set()
        await asyncio.sleep(600)
    finally:
        print("cleaned up", flush=True)

asyncio.run_coroutine_threadsafe(work(), _shared_loop())
began.wait()
"""


def test_calls_that_run_at_the_end_of_the_process_clean_up() -> None:
    words = [sys.executable, "-X", "dev", "-W", "error", "-c", LEFT]
    run = subprocess.run(words, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert (run.stdout, run.stderr, run.returncode) == ("cleaned up\n", "", 0)
