"""Sandboxes on a real API server that wait for a pod, or get none: why is told."""

from __future__ import annotations

import time
from typing import Any

import pytest
from sandlot_kube import clock

from tests.controller.cluster import Cluster
from tests.controller.objects import is_ready
from tests.controller.sandboxes import ID, cold, ended, touch
from tests.waiting import until

pytestmark = pytest.mark.programs


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
    async def is_given_up() -> bool:
        cluster.passed += 300.0
        await touch(cluster, ID)
        return ended(cluster, ID, "start_failed")

    cluster.nodes.clear()
    async with cluster.controlled(start_timeout=300.0):
        await cluster.sandbox(ID)
        await cluster.until(
            lambda: ID in cluster.sandboxes and cluster.sandboxes[ID].status.message == "full",
            "it says what it waits for",
        )
        assert cluster.sandboxes[ID].status.phase == "Pending"
        await until(is_given_up, pause=0.5)


def promised(sandbox_id: str, *, seconds: float) -> dict[str, Any]:
    until = clock.text(time.time() + seconds)
    return {"sandboxId": sandbox_id, "state": "Pending", "waitingUntil": until}


async def test_one_that_waits_gets_no_pod_and_ends_when_its_gateway_is_lost(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewal, later = 600.0, "i-ffffffffffffffff"
    monkeypatch.setattr("sandlot_controller.act.sandbox_facts._RENEWAL", renewal)
    async with cluster.controlled():
        await cluster.sandbox("sb-lost", **promised("sb-lost", seconds=1))
        await cluster.sandbox("sb-late", **promised("sb-late", seconds=1))
        await cluster.sandbox("sb-kept", **promised("sb-kept", seconds=6000))
        await cluster.sandbox("sb-cold", **promised("sb-cold", seconds=1))
        await cold(cluster)
        await cluster.sandbox(ID, sandboxId="sb-cold", state="Running")
        # Renewed while it could have been ended.
        await cluster.sandbox("sb-late", **promised("sb-late", seconds=6000))
        await cold(cluster, later)  # so the controller has seen the renewal
        cluster.passed += renewal
        await touch(cluster, "sb-lost")
        await cluster.until(lambda: ended(cluster, "sb-lost", "start_failed"), "it is lost")
        assert "gateway" in (cluster.sandboxes["sb-lost"].status.message or "")
        await cluster.until(lambda: "sb-cold" not in cluster.sandboxes, "its pod's own tells of it")
        assert not ended(cluster, ID, "start_failed")
        for name in ("sb-late", "sb-kept"):
            assert cluster.sandboxes[name].status.phase == "Pending"
        assert cluster.made == [ID, later]


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


async def test_more_cold_starts_than_may_be_at_one_time_wait_their_turn(cluster: Cluster) -> None:
    cluster.start_seconds = 0.2
    names = [f"i-{number:016x}" for number in range(8)]
    async with cluster.controlled(cold_starts_per_node=3):
        for name in names:
            await cluster.sandbox(name)
        await cluster.until(lambda: sum(is_ready(pod) for pod in cluster.pods.values()) == 8, "all are up")
    assert sorted(cluster.made) == names
    assert max(cluster.most_starting.values()) <= 3
