"""When a reflector asks again after failures: longer and longer waits, those that the server asks for, and no busy loop."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from tests.kube.following import following, requests
from tests.kube.scripted import answered, failed, listed, pod, stay_open, streamed

# Seconds, of which the shortest is drawn: an attempt that takes longer, on a machine that is busy, begins anew to count.
LONGEST = 60.0


async def test_lists_after_rejected_watches_are_waited_for_longer_and_longer(
    server_and_client, monkeypatch
) -> None:
    """A list works while every watch is rejected: it was repeated as fast as the shortest wait allowed."""
    script, client = server_and_client
    longest: list[float] = []

    def drawn(least: float, most: float) -> float:
        longest.append(most)
        return least

    monkeypatch.setattr("sandlot_kube.backoff.random.uniform", drawn)
    script.lists = [listed(version=7)] * 13
    script.watches = [*[failed(400, "Rejected")] * 12, stay_open()]
    async with following(client, shortest_wait=0.02, longest_wait=LONGEST):
        await requests(script, 13, watch=True)
    assert longest == sorted(longest)
    assert longest[0] < longest[-1] == LONGEST


async def test_a_server_that_says_when_to_come_back_is_not_asked_before(server_and_client) -> None:
    script, client = server_and_client
    loop = asyncio.get_running_loop()
    times: list[float] = []

    async def busy(request: Any) -> Any:
        times.append(loop.time())
        return await answered(429, {"kind": "Status", "message": "come back"}, {"Retry-After": "1"})(request)

    script.lists = [busy, busy, listed(version=7)]
    async with following(client) as (reflector, _):
        await reflector.synced.wait()
    assert times[1] - times[0] >= 1.0


async def test_a_server_that_fails_is_asked_again_and_its_failure_is_told(server_and_client) -> None:
    script, client = server_and_client
    script.lists = [failed(500, "InternalError"), failed(403, "Forbidden"), failed(404, "NotFound")]
    async with following(client, shortest_wait=0.05) as (reflector, seen):
        await requests(script, 2, watch=False)
        assert reflector.failure is not None
        assert reflector.failure.startswith("it is ")
        assert not reflector.synced.is_set()
        script.lists.append(listed(pod("a", 1), version=7))
        await reflector.synced.wait()
        assert reflector.failure is None
    assert seen.told == [("all", ["a"])]


async def test_failures_are_waited_out_longer_and_longer(server_and_client, monkeypatch) -> None:
    script, client = server_and_client
    loop = asyncio.get_running_loop()
    times: list[float] = []
    longest: list[float] = []

    def drawn(least: float, most: float) -> float:
        longest.append(most)
        return least

    monkeypatch.setattr("sandlot_kube.backoff.random.uniform", drawn)

    async def fail(request: Any) -> Any:
        times.append(loop.time())
        return await failed(500, "InternalError")(request)

    script.lists = [fail] * 12 + [listed(version=1)]
    async with following(client, shortest_wait=0.02, longest_wait=LONGEST) as (reflector, _):
        await reflector.synced.wait()
    waits = [after - before for before, after in itertools.pairwise(times)]
    assert all(wait >= 0.02 for wait in waits)
    assert longest == sorted(longest)
    assert longest[0] < longest[-1] == LONGEST


async def test_watches_that_end_at_once_are_no_busy_loop(server_and_client) -> None:
    script, client = server_and_client
    script.lists = [listed(version=7)]
    script.watches = [streamed()] * 1000
    async with following(client, shortest_wait=0.05, longest_wait=0.1) as (reflector, _):
        await reflector.synced.wait()
        await requests(script, 4, watch=True)
        before, begun = len(script.requests), asyncio.get_running_loop().time()
        await asyncio.sleep(0.5)
        # A wait of the shortest kind before each of them but the first.
        most = 1 + (asyncio.get_running_loop().time() - begun) / 0.05
        assert len(script.requests) - before <= most
