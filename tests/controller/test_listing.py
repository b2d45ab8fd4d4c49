"""How long a new leader waits for its first lists: for slow ones until they are there, for failing ones a bounded time."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from sandlot_controller.world.listing import ListsFailed, listed
from sandlot_controller.world.world import World
from sandlot_kube import paths
from sandlot_kube.client import KubeClient
from sandlot_kube.reflector import Reflector

from tests.controller import virtual_time

TIMEOUT = 120.0


def reflectors() -> dict[str, Reflector[Any]]:
    world = World(clock=lambda: 0.0)
    return {one.path: one for one in world.reflectors(cast(KubeClient, None), namespace="s")}


async def sync_at(at: float, *some: Reflector[Any]) -> None:
    await asyncio.sleep(at)
    for one in some:
        one.synced.set()


async def seconds_until_listed(all_of_them: dict[str, Reflector[Any]], *, slow: str, takes: float) -> float:
    async with asyncio.TaskGroup() as group:
        group.create_task(sync_at(1.0, *(one for one in all_of_them.values() if one.path != slow)))
        group.create_task(sync_at(takes, all_of_them[slow]))
        await listed(all_of_them.values(), timeout=TIMEOUT)
        return asyncio.get_running_loop().time()


def test_a_slow_list_is_waited_for() -> None:
    """The next leader would begin it again."""
    slow = paths.pods("s")
    assert virtual_time.run(seconds_until_listed(reflectors(), slow=slow, takes=1000.0)) == 1000.0


def test_a_list_that_fails_at_first_is_waited_for() -> None:
    found = reflectors()
    found[paths.nodes()].failure = "no answer"
    seconds = virtual_time.run(seconds_until_listed(found, slow=paths.nodes(), takes=TIMEOUT - 1.0))
    assert seconds == TIMEOUT - 1.0


def test_one_that_fails_is_named_in_time() -> None:
    """A watch that broke after its list is no reason to give up."""
    found = reflectors()
    found[paths.nodes()].failure = "nodes is forbidden (status 403)"
    found[paths.pods("s")].failure = "no answer"

    async def named() -> tuple[str, float]:
        await sync_at(1.0, *(one for one in found.values() if one.path != paths.nodes()))
        with pytest.raises(ListsFailed) as failed:
            await listed(found.values(), timeout=TIMEOUT)
        return str(failed.value), asyncio.get_running_loop().time()

    assert virtual_time.run(named()) == (
        "cannot read /api/v1/nodes: nodes is forbidden (status 403)",
        1.0 + TIMEOUT,
    )
