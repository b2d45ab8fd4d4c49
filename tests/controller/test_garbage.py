"""What is left over on a real API server goes: pods without a resource, claims without a record, old ends."""

from __future__ import annotations

import asyncio
import time

import pytest
from sandlot_controller.act.api import Api
from sandlot_controller.act.ended_sandboxes import EndedSandboxes
from sandlot_controller.act.pod_deletion import PodDeletion
from sandlot_controller.act.sidecars import Sidecars
from sandlot_controller.metrics import Metrics
from sandlot_controller.tokens import InstanceTokens
from sandlot_controller.world.world import World
from sandlot_kube import paths

from tests.controller.cluster import Cluster
from tests.controller.objects import NEVER, is_ready
from tests.controller.sandboxes import running

pytestmark = pytest.mark.programs

COLD = "i-0123456789abcdef"


async def warm(cluster: Cluster, *, size: int = 1) -> list[str]:
    await cluster.pool(size=size, reuse=NEVER)
    await cluster.until(lambda: len(cluster.warm()) == size, "the pool is filled")
    return cluster.warm()


async def claimed(cluster: Cluster) -> tuple[str, str]:
    """A pod of a pool and its Sandbox, and the controller knows of them."""
    (pod,) = await warm(cluster)
    name = await cluster.claim(pod)
    await cluster.until(lambda: cluster.pools["p"].status.claimed == 1, "it is known to be claimed")
    await cluster.until(lambda: cluster.warm() not in ([], [pod]), "it was replaced")
    return pod, name


async def test_a_warm_resource_deleted_while_no_controller_ran_takes_its_pod_along(cluster: Cluster) -> None:
    async with cluster.controlled():
        pod, name = await claimed(cluster)
    await cluster.delete(paths.sandboxes(cluster.namespace, name))
    await cluster.until(lambda: name not in cluster.sandboxes, "the resource is gone")
    async with cluster.controlled(record_grace=0.5):
        await cluster.until(lambda: pod not in cluster.pods, "its pod is gone")
        assert cluster.sidecars.told == {pod: "deleted"}
        assert len(cluster.warm()) == 1
    assert len(cluster.made) == 2


async def test_a_claim_without_a_record_is_adopted_and_its_record_waited_for(cluster: Cluster) -> None:
    async with cluster.controlled():
        pod, other = await warm(cluster, size=2)
    for each in (pod, other):
        await cluster.claim(each, record=False)
    async with cluster.controlled(record_grace=60.0):
        # They count as claimed by their sidecars' word alone: the pool is two short.
        await cluster.until(lambda: cluster.pools["p"].status.claimed == 2, "they are known to be claimed")
        await cluster.until(lambda: len(cluster.made) == 4, "they are replaced")
        await cluster.sandbox("sbx-late", podName=pod, sandboxId="sbx-late", state="Started")
        await cluster.until(lambda: running(cluster, "sbx-late"), "its record has been seen")
        cluster.passed += 60.0
        await cluster.until(lambda: other not in cluster.pods, "the one without a record is gone")
        assert pod in cluster.pods
    assert cluster.sidecars.told == {other: "deleted"}


async def test_a_cold_resource_deleted_while_no_controller_ran_takes_its_pod_along(cluster: Cluster) -> None:
    async with cluster.controlled():
        await cluster.sandbox(COLD)
        await cluster.until(lambda: COLD in cluster.pods and is_ready(cluster.pods[COLD]), "it is up")
    await cluster.delete(paths.sandboxes(cluster.namespace, COLD))
    async with cluster.controlled():
        await cluster.until(lambda: not cluster.pods, "its pod is gone")
    assert cluster.made == [COLD]


async def test_a_pool_deleted_while_no_controller_ran_leaves_the_claimed_ones_only(cluster: Cluster) -> None:
    async with cluster.controlled():
        pods = await warm(cluster, size=3)
    await cluster.claim(pods[0], record=False)
    await cluster.claim(pods[1])
    await cluster.delete(paths.pools(cluster.namespace, "p"))
    async with cluster.controlled():
        await cluster.until(lambda: sorted(cluster.pods) == pods[:2], "the unclaimed one is gone")
    assert set(cluster.sidecars.asked) >= {pods[2]}


async def test_a_deletion_that_no_watch_told_is_found_by_the_next_list(cluster: Cluster) -> None:
    async with cluster.controlled():
        pod, _ = await claimed(cluster)
    world, metrics = World(clock=time.monotonic), Metrics()
    api = Api(cluster.client, namespace=cluster.namespace, metrics=metrics)
    deletion, sidecars = PodDeletion(world, api), Sidecars(port=cluster.sidecars.port)
    ended = EndedSandboxes(
        world,
        api,
        deletion=deletion,
        settings=cluster.settings(),
        tokens=InstanceTokens.from_file(cluster.key_file),
        sidecars=sidecars,
        metrics=metrics,
    )
    task = asyncio.create_task(ended.run())
    try:
        world.pods_replaced(list(cluster.pods.values()))
        world.sandboxes_replaced(list(cluster.sandboxes.values()))
        world.sandboxes_replaced([])
        await cluster.until(lambda: pod not in cluster.pods, "its pod is gone")
    finally:
        task.cancel()
        await asyncio.wait([task])
        await deletion.close()
        await sidecars.close()


async def test_ends_that_grew_old_while_no_controller_ran_are_removed(cluster: Cluster) -> None:
    async with cluster.controlled():
        await cluster.sandbox(COLD)
        await cluster.until(lambda: COLD in cluster.pods and is_ready(cluster.pods[COLD]), "it is up")
        await cluster.end(COLD)
        await cluster.until(lambda: not cluster.pods, "its pod is gone")
        await cluster.until(lambda: cluster.sandboxes[COLD].status.verdict == "deleted", "its end is told")
    async with cluster.controlled(retention=0.0):
        # Those that ended within one minute go together, after it.
        await cluster.until(lambda: not cluster.sandboxes, "the resource is gone", timeout=90)
