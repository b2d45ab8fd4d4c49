"""Connections whose packets are dropped and that no one closes: a watch fails and goes on, though it waits for nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sandlot_kube.client import KubeClient

from tests.cable import Cable, cable
from tests.kube.following import following
from tests.kube.scripted import Scripted, event, listed, pod, scripted, streamed
from tests.netlink import listening_at, network_at
from tests.waiting import until

pytestmark = [pytest.mark.root, pytest.mark.slow]

NEVER = 3600.0  # seconds of silence after which the watch would give up by itself


@pytest.fixture
def net() -> Iterator[Cable]:
    with cable("w", network=19) as made:
        yield made


@pytest.fixture
async def distant(net: Cable) -> AsyncIterator[tuple[Scripted, KubeClient]]:
    """A scripted API server at the other end of the cable."""
    async with scripted(listening_at(Path(net.path), net.inside)) as both:
        yield both


@contextmanager
def cut(net: Cable) -> Iterator[None]:
    with network_at(Path(net.path)) as inside:
        inside.drop(net.outside)
        try:
            yield
        finally:
            inside.mend(net.outside)


async def test_a_watch_that_is_open(net: Cable, distant: tuple[Scripted, KubeClient]) -> None:
    script, client = distant
    script.lists = [listed(version=7)]
    script.watches = [
        streamed(event("ADDED", pod("a", 8)), stay=True),
        streamed(event("ADDED", pod("b", 9)), stay=True),
    ]
    async with following(client, idle=NEVER) as (reflector, seen):
        await seen.until(lambda: ("changed", "a") in seen.told)
        with cut(net):
            await until(lambda: reflector.failure)
        await seen.until(lambda: ("changed", "b") in seen.told)
    assert [query["resourceVersion"] for query in script.queries(watch=True)] == ["7", "8"]
    assert len(script.queries(watch=False)) == 1


async def test_a_watch_that_is_asked_for(net: Cable, distant: tuple[Scripted, KubeClient]) -> None:
    """Until it has failed, the one before counts as complete."""
    script, client = distant
    script.lists = [listed(version=7)]
    # The first may get the request, but its answer is lost.
    script.watches = [streamed(event("ADDED", pod("b", 9)), stay=True)] * 2
    with network_at(Path(net.path)) as inside:
        async with following(client, idle=NEVER, replaced=lambda _: inside.drop(net.outside)) as both:
            reflector, seen = both
            await until(lambda: reflector.failure)
            assert seen.told == []
            inside.mend(net.outside)
            await seen.until(lambda: seen.told == [("changed", "b")])
