"""Pods that run one sandbox after the other, by default: which end of which Sandbox they survive, and what ends them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sandlot_controller.world.world import World
from sandlot_kube import paths
from sandlot_kube.objects import Pod

from tests.controller.cluster import Cluster
from tests.controller.objects import NEVER
from tests.controller.sandboxes import touch
from tests.waiting import until

pytestmark = pytest.mark.programs

TENANT = {"policy": "tenant"}


async def ready(cluster: Cluster, *, size: int = 1, **spec: Any) -> list[str]:
    await cluster.pool(size=size, **spec)
    await cluster.until(lambda: len(cluster.warm()) == size, "the pool is filled")
    return cluster.warm()


async def warm(cluster: Cluster) -> list[str]:
    """Of a pool that says nothing of reuse."""
    return await ready(cluster)


def counts(cluster: Cluster) -> tuple[int, int]:
    status = cluster.pools["p"].status
    return status.ready, status.claimed


async def owned(cluster: Cluster, pod: str, *, generation: int) -> str:
    name = await cluster.claim(pod, generation=generation)
    await cluster.until(lambda: counts(cluster)[1] == 1, "it is known to be claimed")
    return name


async def test_a_pod_that_was_reset_is_warm_again_and_only_a_lasting_surplus_goes(cluster: Cluster) -> None:
    async with cluster.controlled(surplus_grace=60.0):
        (pod,) = await warm(cluster)
        name = await owned(cluster, pod, generation=1)
        await cluster.until(lambda: len(cluster.made) == 2, "it was replaced")
        await cluster.end(name)
        cluster.reset(pod)
        await cluster.until(lambda: counts(cluster) == (2, 0), "it is warm again")
        assert cluster.sidecars.asked == []
        cluster.passed += 60.0
        await touch(cluster, "p", of=paths.pools)
        await cluster.until(lambda: len(cluster.pods) == 1, "one of the two is gone")
        assert len(cluster.sidecars.asked) == 1
    assert len(cluster.made) == 2
    assert cluster.sidecars.told == {}


async def test_the_removal_of_an_earlier_sandbox_leaves_the_pod_to_the_next(cluster: Cluster) -> None:
    async with cluster.controlled(retention=0.0, reset_grace=10.0):
        (pod,) = await warm(cluster)
        first = await owned(cluster, pod, generation=1)
        await cluster.end(first, at=0.0)
        cluster.reset(pod)
        second = await cluster.claim(pod, generation=2)
        await cluster.until(lambda: first not in cluster.sandboxes, "the first record is removed", timeout=90)
        await cluster.until(lambda: counts(cluster) == (1, 1), "the second one has it")
    assert pod in cluster.pods
    assert second in cluster.sandboxes
    assert cluster.sidecars.told == {}


async def test_a_pod_that_nobody_resets_after_the_end_is_ended(cluster: Cluster) -> None:
    """Its gateway died between the two."""
    async with cluster.controlled(reset_grace=0.5):
        (pod,) = await warm(cluster)
        name = await owned(cluster, pod, generation=1)
        await cluster.end(name)
        await until(lambda: cluster.sidecars.told == {pod: "deleted"})
        await cluster.dies(pod, "sidecar", code=0)
        await cluster.until(lambda: pod not in cluster.pods, "its pod is gone")


async def test_a_pod_whose_sidecar_is_silent_after_the_end_is_deleted(cluster: Cluster) -> None:
    async with cluster.controlled(reset_grace=0.5):
        (pod,) = await warm(cluster)
        name = await owned(cluster, pod, generation=1)
        await cluster.pod_says(pod, podIP="127.0.0.2", podIPs=[{"ip": "127.0.0.2"}])
        await cluster.end(name)
        await cluster.until(lambda: pod not in cluster.pods, "its pod is gone")
    assert cluster.sidecars.told == {}


async def test_short_sandboxes_without_records_keep_their_pod(cluster: Cluster) -> None:
    """A controller that starts asks who owns it, and each time it is another one."""
    async with cluster.controlled():
        (pod,) = await warm(cluster)
    await cluster.claim(pod, record=False, generation=1)
    async with cluster.controlled(record_grace=2.0):
        for generation in range(2, 7):
            looks = cluster.sidecars.looks
            await until(lambda looks=looks: cluster.sidecars.looks > looks)
            await cluster.claim(pod, record=False, generation=generation)
            cluster.passed += 1.5
        cluster.reset(pod)
        await cluster.until(lambda: counts(cluster) == (2, 0), "it is warm again")
    assert cluster.sidecars.told == {}


async def test_a_deleted_record_ends_the_sandbox_that_it_names_and_no_other(cluster: Cluster) -> None:
    async with cluster.controlled(record_grace=0.5):
        (pod,) = await warm(cluster)
        name = await owned(cluster, pod, generation=1)
        await cluster.delete(paths.sandboxes(cluster.namespace, name))
        await until(lambda: cluster.sidecars.told == {pod: "deleted"})


async def test_another_policy_replaces_the_pods(cluster: Cluster) -> None:
    async with cluster.controlled():
        await cluster.pool(size=1, reuse=NEVER)
        await cluster.until(lambda: len(cluster.warm()) == 1, "the pool is filled")
        (before,) = cluster.warm()
        assert "sandlot.dev/reuse" not in cluster.pods[before].metadata.annotations
        await cluster.pool(size=1, reuse=TENANT)
        await cluster.until(lambda: before not in cluster.pods, "the old pod is gone")
        await cluster.until(lambda: len(cluster.warm()) == 1, "there is a new one")
        (after,) = cluster.warm()
        assert cluster.pods[after].metadata.annotations["sandlot.dev/reuse"] == "tenant"


async def test_another_policy_replaces_a_pod_whose_node_the_controller_has_not_seen(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its watch is late, and the pod's deletion without asking its sidecar fails."""
    seen = World.pod_changed

    def late(world: World, pod: Pod) -> None:
        if pod.spec.node_name is None:
            seen(world, pod)
        else:
            asyncio.get_running_loop().call_later(0.5, seen, world, pod)

    monkeypatch.setattr(World, "pod_changed", late)
    async with cluster.controlled():
        (before,) = await ready(cluster, reuse=NEVER)
        await cluster.pool(size=1, reuse=TENANT)
        await cluster.until(lambda: before not in cluster.pods, "the old pod is gone", timeout=20)
    assert cluster.sidecars.asked == [before]
