"""Starts that one leader began count at the next: as pods that nobody has said anything of, and as requests under way."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest
from sandlot_controller.controller import Controller
from sandlot_controller.plan import status
from sandlot_controller.plan.sandboxes import QUEUED_TELL
from sandlot_kube import paths
from sandlot_kube.client import MERGE_PATCH, KubeClient

from tests.controller.cluster import Cluster
from tests.waiting import until

pytestmark = pytest.mark.programs

FIRST, SECOND, THIRD = (f"i-{number:016x}" for number in (1, 2, 3))


def reason(cluster: Cluster, name: str) -> str | None:
    """Return the reason of the condition Ready."""
    conditions = cluster.sandboxes[name].status.conditions if name in cluster.sandboxes else []
    return next((one.reason for one in conditions if one.type == "Ready"), None)


async def test_pods_of_pools_that_no_watch_has_shown_count(cluster: Cluster) -> None:
    """Their leader died right after it had created them: no scheduler and no kubelet has seen them yet."""
    cluster.starts = False
    async with cluster.controlled(starts_per_node=2):
        await cluster.pool(size=4)
        await cluster.until(lambda: len(cluster.made) == 2, "two are there")
    async with cluster.controlled(starts_per_node=2):
        await cluster.pool("q", size=1)
        await cluster.until(
            lambda: "q" in cluster.pools and cluster.pools["q"].status.size == 1, "it has planned"
        )
        assert len(cluster.made) == 2
        cluster.starts = True
        for name in list(cluster.made):
            cluster.spawn(cluster.schedule(name))
        await cluster.until(lambda: (len(cluster.warm()), len(cluster.warm("q"))) == (4, 1), "all are warm")
    assert len(cluster.made) == 5
    assert set(cluster.most_starting.values()) <= {1, 2}


async def test_a_cold_start_whose_status_still_says_that_it_is_queued_counts(cluster: Cluster) -> None:
    """Its leader died between the creation of the pod and the change of the status."""
    cluster.starts, cluster.passed = False, QUEUED_TELL
    async with cluster.controlled(cold_starts_per_node=1):
        await cluster.sandbox(FIRST, madeFor="sb-1", state="Started")
        await cluster.until(lambda: FIRST in cluster.pods, "the first one starts")
        await cluster.sandbox(SECOND, madeFor="sb-2", state="Started")
        await cluster.until(lambda: reason(cluster, SECOND) == "Queued", "the second one waits")
    path = paths.sandboxes(cluster.namespace, FIRST) + "/status"
    said = status.queued(cluster.sandboxes[FIRST], now=0.0)
    await cluster.client.request("PATCH", path, body=said, content_type=MERGE_PATCH)
    await cluster.until(lambda: reason(cluster, FIRST) == "Queued", "its status is as before the pod")
    async with cluster.controlled(cold_starts_per_node=1):
        await cluster.until(lambda: reason(cluster, FIRST) == "Starting", "it is known to start")
        await cluster.sandbox(THIRD, madeFor="sb-3", state="Started")
        await cluster.until(lambda: reason(cluster, THIRD) == "Queued", "the third one waits, too")
        assert cluster.made == [FIRST]


class Late(KubeClient):
    """A client whose creations of pods are on their way until `arrive`, whatever becomes of their senders."""

    def __init__(self, of: KubeClient) -> None:
        super().__init__(of.access)
        self.sent: set[asyncio.Task[bytes]] = set()
        self.arrive = asyncio.Event()

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        if method != "POST" or path != paths.pods(self.namespace):
            return await super().request(method, path, **more)
        sent = asyncio.create_task(self._arrives(method, path, **more))
        self.sent.add(sent)
        return await asyncio.shield(sent)

    async def _arrives(self, method: str, path: str, **more: Any) -> bytes:
        await self.arrive.wait()
        return await super().request(method, path, **more)


async def test_a_leader_that_ends_waits_for_the_starts_that_it_has_asked_for(cluster: Cluster) -> None:
    late = Late(cluster.client)
    first = Controller(late, cluster.settings(starts_per_node=2, lease_seconds=40.0))
    running = asyncio.create_task(first.run())
    try:
        await first.working.wait()
        await cluster.pool(size=2)
        await until(lambda: len(late.sent) == 2)
        running.cancel()
        second = asyncio.create_task(first_plan(cluster))
        # The lease is free at once if nobody waits.
        await asyncio.wait([running], timeout=3.0)
        assert not running.done()
        late.arrive.set()
        await second
        made = {json.loads(await one)["metadata"]["name"] for one in late.sent}
        await cluster.until(lambda: made <= set(cluster.made), "what the first leader has asked for is there")
        assert made == set(cluster.made)
    finally:
        late.arrive.set()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await asyncio.gather(*late.sent)
        await late.close()


async def first_plan(cluster: Cluster) -> None:
    """Lead until the pool is full."""
    async with cluster.controlled(starts_per_node=2):
        await cluster.until(lambda: len(cluster.warm()) == 2, "the pool is full")
