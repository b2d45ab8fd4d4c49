"""Nodes of new pods on a real API server: packed or spread, and others where the scheduler says that one is full."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from sandlot_controller.act.api import Api
from sandlot_controller.controller import Controller
from sandlot_controller.plan import status
from sandlot_controller.plan.sandboxes import MISSING_GRACE, QUEUED_TELL
from sandlot_kube import paths
from sandlot_kube.client import MERGE_PATCH
from sandlot_kube.objects import Pod

from tests.controller.cluster import Cluster
from tests.controller.objects import NEVER, is_ready
from tests.controller.sandboxes import ID, touch

pytestmark = pytest.mark.programs
LATE = 61.0  # seconds, after which a pod may have come and gone before a controller sees its Sandbox


def per_node(cluster: Cluster) -> Counter[str]:
    return Counter(cluster.pods[name].spec.node_name or "" for name in cluster.warm())


def rejected(controller: Controller) -> float:
    return controller.metrics.registry.get_sample_value("sandlot_controller_nodes_rejected_total") or 0.0


def waits_for_any_node(cluster: Cluster, name: str) -> bool:
    scheduled = cluster.pods[name].condition("PodScheduled") if name in cluster.pods else None
    return scheduled is not None and scheduled.message == "full"


def reason(cluster: Cluster) -> str | None:
    """Return the reason of the condition Ready."""
    conditions = cluster.sandboxes[ID].status.conditions if ID in cluster.sandboxes else []
    return next((one.reason for one in conditions if one.type == "Ready"), None)


def phase(cluster: Cluster, name: str) -> str | None:
    return cluster.sandboxes[name].status.phase if name in cluster.sandboxes else None


async def gets_phase(cluster: Cluster, name: str, wanted: str) -> None:
    await cluster.until(lambda: phase(cluster, name) == wanted, f"{name} is {wanted}")


async def test_pods_fill_the_fullest_node_and_run_nowhere_else(cluster: Cluster) -> None:
    await cluster.node()
    first = min(cluster.nodes)
    async with cluster.controlled(starts_per_node=20):
        await cluster.pool(size=6)
        await cluster.until(lambda: len(cluster.warm()) == 6, "all are warm")
    assert per_node(cluster) == {first: 6}
    for pod in cluster.pods.values():
        assert pod.metadata.annotations["sandlot.dev/node"] == first


async def test_pods_are_spread_on_request(cluster: Cluster) -> None:
    for _ in range(2):
        await cluster.node()
    async with cluster.controlled(placement="spread"):
        await cluster.pool(size=6)
        await cluster.until(lambda: len(cluster.warm()) == 6, "all are warm")
    assert sorted(per_node(cluster).values()) == [2, 2, 2]


async def test_where_others_use_the_node_its_pods_go_elsewhere(cluster: Cluster) -> None:
    await cluster.node()
    first, second = sorted(cluster.nodes)
    cluster.taken[first] = 108  # of 110
    async with cluster.controlled() as controller:
        await cluster.pool(size=5)
        await cluster.until(lambda: len(cluster.warm()) == 5, "all are warm")
        await cluster.until(lambda: len(cluster.pods) == 5, "what was rejected is gone")
        assert per_node(cluster) == {first: 2, second: 3}
        # Those that were on the way when the first was rejected; the node is not tried again.
        before = rejected(controller)
        assert 1 <= before <= 4
        await cluster.pool(size=8)
        await cluster.until(lambda: len(cluster.warm()) == 8, "more are warm")
        assert per_node(cluster) == {first: 2, second: 6}
        assert rejected(controller) == before
        assert cluster.pools["p"].status.failures == 0


async def test_pods_that_fit_nowhere_wait_for_a_node_and_get_it(cluster: Cluster) -> None:
    cluster.taken[cluster.nodes[0]] = 110
    async with cluster.controlled(starts_per_node=2):
        await cluster.pool(size=3)
        await cluster.until(
            lambda: "p" in cluster.pools and cluster.pools["p"].status.message == "full", "it says why"
        )

        def waiting() -> list[Pod]:
            return [pod for pod in cluster.pods.values() if pod.spec.node_name is None]

        # The pods that were rejected on the full node are seen until their deletion is.
        await cluster.until(
            lambda: (
                waiting() and not any("sandlot.dev/node" in pod.metadata.annotations for pod in waiting())
            ),
            "those that wait have no node chosen",
        )
        assert len(waiting()) <= 2
        added = await cluster.node()
        await cluster.until(lambda: len(cluster.warm()) == 3, "all are warm")
        assert per_node(cluster) == {added: 3}
        await cluster.until(lambda: cluster.pools["p"].status.message is None, "and the complaint is gone")


async def test_a_cold_start_that_is_rejected_gets_another_node(cluster: Cluster) -> None:
    await cluster.node()
    first, second = sorted(cluster.nodes)
    cluster.taken[first] = 110
    async with cluster.controlled():
        await cluster.sandbox(ID, madeFor="sb-1", state="Started")
        await cluster.until(lambda: ID in cluster.pods and is_ready(cluster.pods[ID]), "it runs")
        assert cluster.pods[ID].spec.node_name == second
        assert cluster.sandboxes[ID].status.phase != "Ended"


async def test_a_cold_start_that_waited_for_a_node_gets_it_also_from_the_next_leader(
    cluster: Cluster,
) -> None:
    cluster.taken[cluster.nodes[0]] = 110
    async with cluster.controlled():
        await cluster.sandbox(ID, madeFor="sb-1", state="Started")
        await cluster.until(lambda: waits_for_any_node(cluster, ID), "it waits")
    before = cluster.pods[ID].metadata.uid
    cluster.passed += LATE
    async with cluster.controlled():
        added = await cluster.node()
        await cluster.until(lambda: ID in cluster.pods and is_ready(cluster.pods[ID]), "it runs")
    assert (cluster.pods[ID].spec.node_name, cluster.pods[ID].metadata.uid != before) == (added, True)
    assert cluster.sandboxes[ID].status.phase != "Ended"


async def test_a_cold_start_that_waited_for_its_turn_gets_it_from_the_next_leader(
    cluster: Cluster,
) -> None:
    cluster.passed, cluster.start_seconds = QUEUED_TELL, 600.0
    async with cluster.controlled(cold_starts_per_node=1):
        await cluster.sandbox("i-00000000000000ff", madeFor="sb-0", state="Started")
        await cluster.until(lambda: cluster.pods, "the first one starts")
        await cluster.sandbox(ID, madeFor="sb-1", state="Started")
        await cluster.until(
            lambda: ID in cluster.sandboxes and cluster.sandboxes[ID].status.message, "it says that it waits"
        )
        assert "start another pod" in (cluster.sandboxes[ID].status.message or "")
    cluster.passed += LATE
    assert ID not in cluster.pods
    cluster.start_seconds = 0.0
    async with cluster.controlled():
        await cluster.until(lambda: ID in cluster.pods and is_ready(cluster.pods[ID]), "it runs")
        await cluster.until(lambda: cluster.sandboxes[ID].status.message is None, "it waits no longer")
        assert cluster.sandboxes[ID].status.phase != "Ended"


async def test_a_cold_start_whose_turn_comes_late_at_the_next_leader_is_no_lost_one(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = Api.create_pod
    begun, held = asyncio.Event(), asyncio.Event()

    async def slow(self: Api, pod: dict[str, Any], *, kind: str) -> None:
        if pod["metadata"]["name"] == ID:
            begun.set()
            await held.wait()
        await create(self, pod, kind=kind)

    monkeypatch.setattr(Api, "create_pod", slow)
    first = "i-00000000000000ff"
    cluster.passed, cluster.start_seconds = QUEUED_TELL, 600.0
    async with cluster.controlled(cold_starts_per_node=1):
        await cluster.sandbox(first, madeFor="sb-0", state="Started")
        await cluster.until(lambda: cluster.pods, "the first one starts")
        await cluster.sandbox(ID, madeFor="sb-1", state="Started")
        await cluster.until(lambda: reason(cluster) == "Queued", "it says that it waits")
    cluster.passed += LATE
    for leader in ("one that ends before the pod exists", "the next one"):
        lost = f"sbx-{len(leader)}"
        await cluster.sandbox(lost, podName="i-none", sandboxId=lost, state="Running")
        async with cluster.controlled(cold_starts_per_node=1):
            cluster.passed += MISSING_GRACE
            await touch(cluster, ID)  # it waits on, longer than a missing pod may
            await touch(cluster, lost)
            await gets_phase(cluster, lost, "Ended")  # so it has looked at both
            assert (reason(cluster), phase(cluster, ID)) == ("Queued", "Pending"), leader
            await cluster.up(first)
            await asyncio.wait_for(begun.wait(), 60)
            begun.clear()
            cluster.passed += MISSING_GRACE
            await touch(cluster, ID)
            again = f"sbx-again-{len(leader)}"
            await cluster.sandbox(again, podName=first, sandboxId=again, state="Started")
            await gets_phase(cluster, again, "Running")  # so it has looked at both again
            assert (reason(cluster), phase(cluster, ID)) == ("Queued", "Pending"), leader
            if leader == "the next one":
                cluster.start_seconds = 0.0
                held.set()
                await cluster.until(lambda: ID in cluster.pods and is_ready(cluster.pods[ID]), "it runs")
                await cluster.until(lambda: reason(cluster) == "Running", "and says so")


async def test_the_next_leader_corrects_the_status_of_one_whose_pod_exists(cluster: Cluster) -> None:
    cluster.start_seconds = 600.0
    async with cluster.controlled():
        await cluster.sandbox(ID, madeFor="sb-1", state="Started")
        await cluster.until(lambda: ID in cluster.pods, "it starts")
    said = status.queued(cluster.sandboxes[ID], now=0.0)
    await cluster.client.request(
        "PATCH",
        paths.sandboxes(cluster.namespace, ID) + "/status",
        body=said,
        content_type=MERGE_PATCH,
    )
    await cluster.until(lambda: reason(cluster) == "Queued", "it says that it waits")
    async with cluster.controlled():
        await cluster.until(lambda: reason(cluster) == "Starting", "it no longer says so")
        assert cluster.sandboxes[ID].status.message is None
    assert cluster.made == [ID]


async def test_cold_starts_count_as_starts_of_their_node(cluster: Cluster) -> None:
    cluster.start_seconds = 0.3
    names = [f"i-{number:016x}" for number in range(6)]
    async with cluster.controlled(starts_per_node=2, cold_starts_per_node=3):
        for name in names:
            await cluster.sandbox(name)
        await cluster.pool(size=4)
        await cluster.until(lambda: len(cluster.warm()) == 4, "the pool is full")
        await cluster.until(lambda: all(is_ready(cluster.pods[name]) for name in names), "all are up")
    assert max(cluster.most_starting.values()) <= 3


async def test_a_smaller_pool_empties_the_emptiest_node(cluster: Cluster) -> None:
    await cluster.node()
    first, second = sorted(cluster.nodes)
    cluster.taken[first] = 107  # of 110
    async with cluster.controlled():
        await cluster.pool(size=5, reuse=NEVER)
        await cluster.until(lambda: len(cluster.warm()) == 5, "five are warm")
        assert per_node(cluster) == {first: 3, second: 2}
        await cluster.pool(size=3, reuse=NEVER)
        await cluster.until(lambda: len(cluster.pods) == 3, "two are gone")
        assert per_node(cluster) == {first: 3}
