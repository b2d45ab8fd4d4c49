"""Sandboxes on a real API server: a pod at once, every end with its verdict, and nothing left behind."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from sandlot_kube import clock, ends, paths
from sandlot_kube.client import MERGE_PATCH
from sandlot_kube.errors import KubeError

from tests.controller.cluster import Cluster, is_ready
from tests.kube.apiserver import ApiServer

pytestmark = pytest.mark.programs

ID = "i-0123456789abcdef"


def ended(cluster: Cluster, name: str, verdict: str) -> bool:
    one = cluster.sandboxes.get(name)
    return one is not None and one.status.phase == "Ended" and one.status.verdict == verdict


def running(cluster: Cluster, name: str) -> bool:
    one = cluster.sandboxes.get(name)
    return one is not None and one.status.phase == "Running"


async def cold(cluster: Cluster, name: str = ID) -> None:
    await cluster.sandbox(name)
    await cluster.until(lambda: name in cluster.pods and is_ready(cluster.pods[name]), "it is up")


async def test_a_cold_start_gets_a_pod_of_its_name_and_a_status(cluster: Cluster) -> None:
    async with cluster.controlled():
        await cold(cluster)
        pod = cluster.pods[ID]
        (owner,) = pod.metadata.owner_references
        assert (owner.kind, owner.name) == ("Sandbox", ID)
        assert pod.metadata.labels["sandlot.dev/for"] == ID
        await cluster.until(lambda: running(cluster, ID), "the status says so")
        status = cluster.sandboxes[ID].status
        assert status.node_name == cluster.nodes[0]
        assert status.pod_ip == "127.0.0.1"
        assert status.pod_name == ID


async def test_the_gateway_s_word_ends_it_and_after_a_while_nothing_is_left(cluster: Cluster) -> None:
    at = time.time() - 120.0
    async with cluster.controlled():
        await cold(cluster)
        await cluster.end(ID, "deadline", at=at, message="3600 s are over", exit_code=3)
        await cluster.until(lambda: ended(cluster, ID, "deadline"), "the verdict is kept")
        status = cluster.sandboxes[ID].status
        assert (status.message, status.exit_code) == ("3600 s are over", 3)
        await cluster.until(lambda: not cluster.pods, "the pod is gone")
        assert list(cluster.sandboxes) == [ID]
    minute = ends.period_end(clock.text(at)[:16] + "Z")
    async with cluster.controlled(retention=time.time() + 1.0 - minute):
        await cluster.until(lambda: not cluster.sandboxes, "and then the resource")


async def test_ends_without_a_minute_are_removed_too(cluster: Cluster) -> None:
    """Of a schema that has none, which drops the field."""
    async with cluster.controlled(retention=1.0):
        await cluster.sandbox(ID)
        path = paths.sandboxes(cluster.namespace, ID) + "/status"
        body = {"status": {"phase": "Ended", "verdict": "deleted", "endedAt": clock.text(time.time())}}
        await cluster.client.request("PATCH", path, body=body, content_type=MERGE_PATCH)
        await cluster.until(lambda: cluster.sandboxes.get(ID), "it was there")
        await cluster.until(lambda: not cluster.sandboxes, "it is gone")


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


async def test_an_image_that_cannot_be_pulled_is_told_to_the_caller(cluster: Cluster) -> None:
    cluster.image_error = "no such image"
    async with cluster.controlled():
        await cluster.sandbox(ID)
        await cluster.until(lambda: ended(cluster, ID, "image_pull"), "the verdict is there")
        assert cluster.sandboxes[ID].status.message == "sandbox: no such image"


async def test_a_pod_that_the_api_server_refuses_is_a_failed_start(cluster: Cluster) -> None:
    async with cluster.controlled():
        await cluster.apply("Sandbox", ID, {"template": {"image": "x", "runtimeClass": "none-such"}})
        await cluster.until(lambda: ended(cluster, ID, "start_failed"), "the verdict is there")
        assert "none-such" in (cluster.sandboxes[ID].status.message or "")


@pytest.mark.parametrize(
    "image", ["10.0.0.1:5000/x", "[::1]:5000/x", "user@10.0.0.1/x", "0x7f.1/x", "a.svc/x", "ghcr.io/x"]
)
async def test_an_image_of_a_registry_that_is_not_allowed_gets_no_pod(cluster: Cluster, image: str) -> None:
    async with cluster.controlled(registries=["docker.io"] if image == "ghcr.io/x" else []):
        await cluster.sandbox(ID, image=image)
        await cluster.until(lambda: ended(cluster, ID, "start_failed"), "the verdict is there")
        assert image.partition("/")[0] in (cluster.sandboxes[ID].status.message or "")
        assert cluster.made == []


async def test_a_start_without_a_node_is_told_and_given_up(cluster: Cluster) -> None:
    cluster.nodes.clear()
    async with cluster.controlled(start_timeout=5.0):
        await cluster.sandbox(ID)
        await cluster.until(
            lambda: ID in cluster.sandboxes and cluster.sandboxes[ID].status.message == "full",
            "it says what it waits for",
        )
        assert cluster.sandboxes[ID].status.phase == "Pending"
        await cluster.until(lambda: ended(cluster, ID, "start_failed"), "the verdict is there")


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
    async with cluster.controlled(node_grace=3.0):
        await cold(cluster)
        await cluster.node_says(cluster.nodes[0], "Unknown")
        await cluster.node_says(cluster.nodes[0], "True")
        with pytest.raises(AssertionError):
            await cluster.until(lambda: ended(cluster, ID, "node_lost"), "lost", timeout=4.0)


async def test_a_claim_on_a_pod_that_is_gone_is_lost(cluster: Cluster) -> None:
    async with cluster.controlled():
        await cluster.pool(size=1)
        await cluster.until(cluster.warm, "one is warm")
        (pod,) = cluster.warm()
        await cluster.dies(pod, "sidecar", code=137)
        await cluster.until(lambda: pod not in cluster.pods, "it is taken away")
        name = await cluster.claim(pod)
        await cluster.until(lambda: ended(cluster, name, "sidecar_lost"), "why it died is remembered")


def promised(sandbox_id: str, *, seconds: float) -> dict[str, Any]:
    until = clock.text(time.time() + seconds)
    return {"sandboxId": sandbox_id, "state": "Pending", "waitingUntil": until}


async def test_one_that_waits_gets_no_pod_and_ends_when_its_gateway_is_lost(cluster: Cluster) -> None:
    async with cluster.controlled(lease_seconds=30.0):
        await cluster.sandbox("sb-lost", **promised("sb-lost", seconds=1))
        await cluster.sandbox("sb-late", **promised("sb-late", seconds=1))
        await cluster.sandbox("sb-kept", **promised("sb-kept", seconds=600))
        await cluster.sandbox("sb-cold", **promised("sb-cold", seconds=1))
        await cold(cluster)
        await cluster.sandbox(ID, sandboxId="sb-cold", state="Running")
        # Renewed while it could have been ended.
        await cluster.sandbox("sb-late", **promised("sb-late", seconds=600))
        await cluster.until(lambda: ended(cluster, "sb-lost", "start_failed"), "it is lost", timeout=60)
        assert "gateway" in (cluster.sandboxes["sb-lost"].status.message or "")
        await cluster.until(lambda: "sb-cold" not in cluster.sandboxes, "its pod's own tells of it")
        assert not ended(cluster, ID, "start_failed")
        for name in ("sb-late", "sb-kept"):
            assert cluster.sandboxes[name].status.phase == "Pending"
        assert cluster.made == [ID]


async def test_one_that_waited_and_got_a_warm_pod_lives_and_takes_it_along(cluster: Cluster) -> None:
    async with cluster.controlled():
        await cluster.pool(size=1)
        await cluster.sandbox("sb-1", **promised("sb-1", seconds=600))
        await cluster.until(cluster.warm, "one is warm")
        (pod,) = cluster.warm()
        cluster.sidecars.claimed.add(pod)
        await cluster.sandbox("sb-1", sandboxId="sb-1", state="Running", podName=pod)
        await cluster.until(lambda: len(cluster.made) == 2, "the pool is filled again")
        assert cluster.sandboxes["sb-1"].status.phase != "Ended"
        await cluster.end("sb-1")
        await cluster.until(lambda: pod not in cluster.pods, "its pod is gone")


async def test_deleting_a_warm_resource_deletes_its_pod(cluster: Cluster) -> None:
    async with cluster.controlled():
        await cluster.pool(size=1)
        await cluster.until(cluster.warm, "one is warm")
        (pod,) = cluster.warm()
        name = await cluster.claim(pod)
        await cluster.until(lambda: name in cluster.sandboxes, "its record is there")
        await cluster.delete(paths.sandboxes(cluster.namespace, name))
        await cluster.until(lambda: pod not in cluster.pods, "its pod is gone")


async def test_deleting_a_cold_resource_deletes_its_pod(cluster: Cluster) -> None:
    async with cluster.controlled():
        await cold(cluster)
        await cluster.delete(paths.sandboxes(cluster.namespace, ID))
        await cluster.until(lambda: not cluster.pods, "its pod is gone")


async def test_what_happened_while_no_controller_ran_is_found(cluster: Cluster) -> None:
    other = "i-ffffffffffffffff"
    async with cluster.controlled():
        await cold(cluster)
        await cold(cluster, other)
        await cluster.until(lambda: running(cluster, other), "both run")
        await cluster.until(lambda: running(cluster, ID), "both run")
    await cluster.end(ID, "deleted")
    await cluster.delete(paths.pods(cluster.namespace, other))
    async with cluster.controlled():
        await cluster.until(lambda: ended(cluster, ID, "deleted"), "the gateway's word")
        await cluster.until(lambda: ended(cluster, other, "sandbox_lost"), "the lost pod")
        await cluster.until(lambda: not cluster.pods, "nothing is left")
    assert sorted(cluster.made) == [ID, other]


async def test_more_cold_starts_than_may_be_at_one_time_wait_their_turn(cluster: Cluster) -> None:
    cluster.start_seconds = 0.2
    names = [f"i-{number:016x}" for number in range(8)]
    async with cluster.controlled(cold_starts_per_node=3):
        for name in names:
            await cluster.sandbox(name)
        await cluster.until(lambda: sum(is_ready(pod) for pod in cluster.pods.values()) == 8, "all are up")
    assert sorted(cluster.made) == names
    assert max(cluster.most_starting.values()) <= 3


async def test_an_outage_of_the_api_server_delays_and_loses_nothing(
    cluster: Cluster, resources: ApiServer
) -> None:
    async with cluster.controlled(lease_seconds=60.0):
        await cluster.pool(size=2)
        await cluster.until(lambda: len(cluster.warm()) == 2, "two are warm")
        await cold(cluster)
        await asyncio.to_thread(resources.stop)
        try:
            with pytest.raises(KubeError):
                await cluster.sandbox("i-00000000000000aa")
        finally:
            await asyncio.to_thread(resources.start)
        await cold(cluster, "i-00000000000000bb")
        await cluster.end(ID)
        await cluster.until(lambda: ended(cluster, ID, "deleted"), "ends are seen again")
        await cluster.claim(cluster.warm()[0])
        await cluster.until(
            lambda: len(cluster.made) >= 5 and len(cluster.warm()) == 2, "pools are filled again", timeout=60
        )
    assert len(cluster.made) == 5
