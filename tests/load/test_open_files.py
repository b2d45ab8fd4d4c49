"""Open files of pods in the load tests' samples: no sample waits for a pod that does not respond."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from sandlot_kube.errors import KubeError, KubeUnreachable

from loadtests.load.open_files import OpenFiles
from tests.waiting import until

PARTS = [("gateway", 8640, "g-1"), ("gateway", 8640, "g-2"), ("controller", 8080, "c-1")]


async def test_a_pod_that_does_not_respond_holds_up_no_sample() -> None:
    asked: list[str] = []
    answer = asyncio.Event()

    async def metrics(pod: str, port: int) -> str:
        asked.append(pod)
        if pod == "c-1":
            await answer.wait()
        return f"# HELP\nprocess_open_fds {len(pod)}.0\n"

    files = OpenFiles(metrics)
    files.ask(PARTS)
    assert files.counts(PARTS) == {}
    await until(lambda: files.counts(PARTS) == {"gateway": 6})
    files.ask(PARTS)
    await until(lambda: len(asked) == 5)
    assert asked.count("c-1") == 1, "it is still being asked"
    answer.set()
    await until(lambda: files.counts(PARTS) == {"gateway": 6, "controller": 3})
    await files.close()


async def test_what_a_pod_told_last_counts_until_it_responds_again() -> None:
    failures: list[KubeError] = []

    async def metrics(pod: str, port: int) -> str:
        if failures:
            raise failures.pop()
        return "process_open_fds 7\n"

    files = OpenFiles(metrics)
    files.ask(PARTS[:1])
    await until(lambda: files.counts(PARTS) == {"gateway": 7})
    failures.append(KubeUnreachable("no answer"))
    files.ask(PARTS[:1])
    await until(lambda: not failures)
    assert files.counts(PARTS) == {"gateway": 7}
    await files.close()


async def test_a_failure_of_another_kind_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = asyncio.get_running_loop()
    unretrieved: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: unretrieved.append(context))

    async def metrics(pod: str, port: int) -> str:
        raise ValueError("no text")

    files = OpenFiles(metrics)
    files.ask(PARTS[:1])
    await until(lambda: not files._asking)
    gc.collect()
    assert files.counts(PARTS) == {}
    assert not unretrieved
    assert "g-1" in caplog.text
    await files.close()


async def test_nothing_is_asked_after_the_end() -> None:
    begun = asyncio.Event()

    async def metrics(pod: str, port: int) -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    files = OpenFiles(metrics)
    files.ask(PARTS)
    await begun.wait()
    await files.close()
    assert files.counts(PARTS) == {}
    assert not files._asking
