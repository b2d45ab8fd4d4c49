"""Sandboxes on a real API server that lose their pod, container or node: each loss is a verdict."""

from __future__ import annotations

from typing import Any

import pytest
from sandlot_kube import paths

from tests.controller.cluster import Cluster
from tests.controller.objects import NEVER
from tests.controller.sandboxes import ID, cold, ended, running, touch
from tests.waiting import until

pytestmark = pytest.mark.programs

OTHER = "i-ffffffffffffffff"


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        ({"phase": "Failed", "reason": "Evicted", "message": "the node was low on memory"}, "evicted"),
        (
            {
                "conditions": [
                    {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"},
                ]
            },
            "node_lost",
        ),
        ({"phase": "Failed", "message": "who knows"}, "sandbox_lost"),
    ],
)
async def test_what_befalls_a_pod_is_its_verdict(
    cluster: Cluster, status: dict[str, Any], verdict: str
) -> None:
    async with cluster.controlled():
        await cold(cluster)
        await cluster.pod_says(ID, **status)
        await cluster.until(lambda: ended(cluster, ID, verdict), verdict)
        await cluster.until(lambda: not cluster.pods, "the pod is gone")


@pytest.mark.parametrize(
    ("container", "code", "reason", "verdict"),
    [
        ("sandbox", 137, "OOMKilled", "oom"),
        ("sandbox", 1, "Error", "sandbox_lost"),
        ("sidecar", 137, "Error", "sidecar_lost"),
        ("sidecar", 137, "OOMKilled", "sidecar_lost"),
        ("sidecar", 0, "Completed", "sidecar_lost"),
    ],
)
async def test_what_befalls_a_container_is_its_verdict(
    cluster: Cluster, container: str, code: int, reason: str, verdict: str
) -> None:
    async with cluster.controlled():
        await cold(cluster)
        await cluster.dies(ID, container, code=code, reason=reason)
        await cluster.until(lambda: ended(cluster, ID, verdict), verdict)


async def test_a_sidecar_that_ended_in_order_leaves_the_word_to_the_gateway(cluster: Cluster) -> None:
    async with cluster.controlled(end_grace=20.0):
        await cold(cluster)
        await cluster.dies(ID, "sidecar", code=0, reason="Completed")
        await cluster.until(lambda: cluster.pods[ID].container("sidecar"), "it is told")
        await cluster.end(ID, "idle")
        await cluster.until(lambda: ended(cluster, ID, "idle"), "the gateway's verdict counts")


async def test_a_deleted_pod_is_a_lost_sandbox(cluster: Cluster) -> None:
    async with cluster.controlled():
        await cold(cluster)
        await cluster.delete(paths.pods(cluster.namespace, ID))
        await cluster.until(lambda: ended(cluster, ID, "evicted"), "the verdict is there")
        await cluster.until(lambda: not cluster.pods, "no other pod is made")
        assert cluster.made == [ID]


async def test_a_silent_node_loses_its_sandboxes(cluster: Cluster) -> None:
    async with cluster.controlled():
        await cold(cluster)
        await cluster.node_says(cluster.nodes[0], "Unknown")
        await cluster.until(lambda: ended(cluster, ID, "node_lost"), "the verdict is there")
        await cluster.until(lambda: not cluster.pods, "the pod is gone without the node's word")


async def test_a_node_that_comes_back_in_time_loses_nothing(cluster: Cluster) -> None:
    (first,) = cluster.nodes

    async def another_is_lost() -> bool:
        cluster.passed += 60.0
        for name in (ID, OTHER):
            await touch(cluster, name)
        return ended(cluster, OTHER, "node_lost")

    async with cluster.controlled(node_grace=60.0):
        await cold(cluster)
        await cluster.node_says(first, "Unknown")
        await cluster.node_says(first, "True")
        cluster.taken[first] = cluster.pods_per_node
        second = await cluster.node()
        await cold(cluster, OTHER)  # on the second node: so the controller has seen the first one come back
        await cluster.node_says(second, "Unknown")
        await until(another_is_lost, pause=0.5)
        await cluster.until(lambda: OTHER not in cluster.pods, "what followed from the loss is done, too")
        assert not ended(cluster, ID, "node_lost")
        assert ID in cluster.pods


async def test_a_claim_on_a_pod_that_is_gone_is_lost(cluster: Cluster) -> None:
    async with cluster.controlled():
        await cluster.pool(size=1, reuse=NEVER)
        await cluster.until(cluster.warm, "one is warm")
        (pod,) = cluster.warm()
        await cluster.dies(pod, "sidecar", code=137)
        await cluster.until(lambda: pod not in cluster.pods, "it is taken away")
        name = await cluster.claim(pod)
        await cluster.until(lambda: ended(cluster, name, "sidecar_lost"), "why it died is remembered")


async def test_what_happened_while_no_controller_ran_is_found(cluster: Cluster) -> None:
    async with cluster.controlled():
        await cold(cluster)
        await cold(cluster, OTHER)
        await cluster.until(lambda: running(cluster, OTHER), "both run")
        await cluster.until(lambda: running(cluster, ID), "both run")
    await cluster.end(ID, "deleted")
    await cluster.delete(paths.pods(cluster.namespace, OTHER))
    # A controller that sees the pod go knows more: it was evicted.
    await cluster.until(lambda: OTHER not in cluster.pods, "its pod is gone")
    async with cluster.controlled():
        await cluster.until(lambda: ended(cluster, ID, "deleted"), "the gateway's word")
        await cluster.until(lambda: ended(cluster, OTHER, "sandbox_lost"), "the lost pod")
        await cluster.until(lambda: not cluster.pods, "nothing is left")
    assert sorted(cluster.made) == [ID, OTHER]
