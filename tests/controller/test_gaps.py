"""While a watch fails or is not listed yet, what it would show is unknown: nothing is ended, deleted or made twice."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator

import pytest
from sandlot_kube import paths

from tests.controller.cluster import Cluster
from tests.controller.gaps import Gaps
from tests.controller.objects import NEVER
from tests.controller.sandboxes import ID, cold, ended
from tests.waiting import until

pytestmark = pytest.mark.programs

OTHER = "i-ffffffffffffffff"
LATER = 1000.0  # seconds, more than every grace


@pytest.fixture
async def gaps(cluster: Cluster) -> AsyncIterator[Gaps]:
    """What the cluster's controllers see through."""
    gaps = Gaps(cluster.client)
    cluster.seen_through = gaps
    try:
        yield gaps
    finally:
        await gaps.close()


async def test_a_node_that_may_have_come_back_unseen_is_not_lost(cluster: Cluster, gaps: Gaps) -> None:
    async with cluster.controlled(node_grace=30.0):
        await cold(cluster)
        await cluster.node_says(cluster.nodes[0], "Unknown")
        await cold_after(cluster)
        gaps.break_off(paths.nodes())
        await gaps.failing.wait()
        await cluster.node_says(cluster.nodes[0], "True")
        cluster.passed = LATER
        await cold_after(cluster, "i-eeeeeeeeeeeeeeee")
        gaps.mend()
        await cold_after(cluster, "i-dddddddddddddddd")
        assert not cluster.sandboxes[ID].status.verdict


async def test_a_node_that_came_back_is_not_lost_though_its_watch_is_silent(
    cluster: Cluster, gaps: Gaps
) -> None:
    """The connection may be dead, or its API server hang."""
    async with cluster.controlled(node_grace=30.0):
        await cold(cluster)
        await cluster.node_says(cluster.nodes[0], "Unknown")
        await cold_after(cluster)
        gaps.silent.add(paths.nodes())
        await cluster.node_says(cluster.nodes[0], "True")
        cluster.passed = LATER
        await cold_after(cluster, "i-eeeeeeeeeeeeeeee")
        await until(lambda: paths.nodes(cluster.nodes[0]) in gaps.read)
        with pytest.raises(AssertionError):
            await cluster.until(lambda: ended(cluster, ID, "node_lost"), "it is lost", timeout=3.0)
        # Another time it stays away: the API server says so.
        await cluster.node_says(cluster.nodes[0], "Unknown")
        gaps.mend()
        await cold_after(cluster, "i-dddddddddddddddd")
        cluster.passed += LATER
        await cold_after(cluster, "i-cccccccccccccccc")
        await cluster.until(lambda: ended(cluster, ID, "node_lost"), "it is lost")


async def cold_after(cluster: Cluster, name: str = OTHER) -> None:
    """Wait until the controller has handled what came before: it has a cold start's pod made."""
    await cluster.sandbox(name)
    await cluster.until(lambda: name in cluster.pods, "its pod is made")


async def test_a_claim_whose_record_no_watch_can_show_goes_on(cluster: Cluster, gaps: Gaps) -> None:
    async with cluster.controlled():
        await cluster.pool(size=1, reuse=NEVER)
        await cluster.until(cluster.warm, "one is warm")
    (pod,) = cluster.warm()
    await cluster.claim(pod, record=False)
    async with cluster.controlled(record_grace=60.0):
        gaps.break_off(paths.sandboxes(cluster.namespace))
        await gaps.failing.wait()
        await cluster.claim(pod)
        cluster.passed = LATER
        with pytest.raises(AssertionError):
            await cluster.until(lambda: cluster.sidecars.told, "it is ended", timeout=3.0)
        gaps.mend()
        await cluster.until(lambda: cluster.pools["p"].status.claimed == 1, "its record is known")
    assert cluster.sidecars.told == {}


async def a_plan_later(cluster: Cluster, gaps: Gaps, *, ready: int) -> None:
    """Have the pools planned again while the watch of pods is broken, and mend it: so many of the first one are ready."""
    cluster.passed = LATER
    await cluster.pool("q", size=1)
    await cluster.until(lambda: cluster.warm("q"), "another plan is carried out")
    gaps.mend()
    await cluster.until(lambda: cluster.pools["p"].status.ready == ready, "its pods are seen")


async def test_pods_that_no_watch_can_show_are_not_made_again(cluster: Cluster, gaps: Gaps) -> None:
    async with cluster.controlled():
        await cluster.pool(size=1)
        await cluster.until(cluster.warm, "one is warm")
        gaps.break_off(paths.pods(cluster.namespace))
        await gaps.failing.wait()
        await cluster.pool(size=3)
        await cluster.until(lambda: len(cluster.made) == 3, "the rest is made")
        await a_plan_later(cluster, gaps, ready=3)
    assert len(cluster.made) == 4


async def test_a_pod_that_may_have_come_up_unseen_is_no_failed_start(cluster: Cluster, gaps: Gaps) -> None:
    cluster.start_seconds = LATER
    async with cluster.controlled():
        await cluster.pool(size=1)
        await cluster.until(
            lambda: any(pod.spec.node_name for pod in cluster.pods.values()), "one has its node"
        )
        await cold_after(cluster)
        gaps.break_off(paths.pods(cluster.namespace))
        await gaps.failing.wait()
        cluster.start_seconds = 0.0
        await cluster.up(cluster.made[0])
        await a_plan_later(cluster, gaps, ready=1)
    assert len(cluster.made) == 3


async def test_a_claim_on_a_pod_that_no_watch_can_show_goes_on(cluster: Cluster, gaps: Gaps) -> None:
    async with cluster.controlled():
        await cluster.pool(size=1, reuse=NEVER)
        await cluster.until(cluster.warm, "one is warm")
        gaps.break_off(paths.pods(cluster.namespace))
        await gaps.failing.wait()
        await cluster.pool(size=2, reuse=NEVER)
        await cluster.until(lambda: len(cluster.warm()) == 2, "there is one more")
        name = await cluster.claim(cluster.made[-1])
        with pytest.raises(AssertionError):
            await cluster.until(lambda: ended(cluster, name, "sandbox_lost"), "lost", timeout=8.0)
        gaps.mend()
        await cluster.until(lambda: cluster.pools["p"].status.claimed == 1, "it is seen")
    assert not cluster.sandboxes[name].status.verdict


async def test_an_ended_pod_has_its_grace_while_nodes_are_not_listed(cluster: Cluster, gaps: Gaps) -> None:
    cluster.sidecars.stopping.add(ID)
    async with cluster.controlled():
        await cold(cluster)
    await cluster.end(ID)
    gaps.held.add(paths.nodes())
    starting = asyncio.create_task(cluster.controller(node_grace=30.0).run())
    try:
        # Seen before the Sandbox is listed, a pod has to change once more.
        await until(lambda: told_of_news(cluster), pause=0.1)
        cluster.passed = LATER
        await cluster.pod_says(ID, message="news")
        with pytest.raises(AssertionError):
            await cluster.until(lambda: ID not in cluster.pods, "it is forced", timeout=3.0)
    finally:
        gaps.go_on()
        starting.cancel()
        await asyncio.wait([starting])


async def told_of_news(cluster: Cluster) -> bool:
    """Change the cold start's pod; whether its sidecar has been told to end."""
    await cluster.pod_says(ID, message=secrets.token_hex(4))
    return ID in cluster.sidecars.told
