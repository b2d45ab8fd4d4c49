"""Pools on a real API server: filled, refilled, rolled, shrunk, and never over-filled by whoever restarts or races."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress

import pytest
from sandlot_contract.names import ANNOTATION_LAYS_IMAGES, ANNOTATION_TEMPLATE
from sandlot_kube import paths
from sandlot_kube.template import decode

from tests.controller.cluster import Cluster
from tests.controller.objects import NEVER

pytestmark = pytest.mark.programs


async def test_a_pool_is_filled_told_of_and_filled_again_after_a_claim(cluster: Cluster) -> None:
    async with cluster.controlled():
        await cluster.pool(size=3, reuse=NEVER)
        await cluster.until(lambda: len(cluster.warm()) == 3, "three are warm")
        await cluster.until(lambda: cluster.pools["p"].status.ready == 3, "the status says so")
        first = cluster.warm()[0]
        pod = cluster.pods[first]
        assert pod.metadata.labels["sandlot.dev/instance"] == first
        assert "python:3.12" in pod.metadata.annotations["sandlot.dev/template"]
        name = await cluster.claim(first)
        await cluster.until(lambda: len(cluster.made) >= 4 and len(cluster.warm()) == 3, "it was replaced")
        await cluster.until(lambda: cluster.pools["p"].status.claimed == 1, "and is told of")
        assert cluster.sandboxes[name].status.phase != "Ended"
        assert len(cluster.made) == 4


async def test_no_node_starts_more_than_its_cap(cluster: Cluster) -> None:
    await cluster.node()
    async with cluster.controlled(starts_per_node=2):
        await cluster.pool(size=12)
        await cluster.until(lambda: len(cluster.warm()) == 12, "all are warm")
    assert len(cluster.made) == 12
    assert max(cluster.most_starting.values()) <= 2


async def test_a_broken_image_backs_off_says_why_and_recovers(cluster: Cluster) -> None:
    cluster.image_error = "no such image"
    async with cluster.controlled(backoff=0.2):
        began = time.monotonic()
        await cluster.pool(size=2)
        await cluster.until(
            lambda: "p" in cluster.pools and cluster.pools["p"].status.failures >= 3, "it fails"
        )
        status = cluster.pools["p"].status
        assert status.message == "image_pull: sandbox: no such image"
        (condition,) = status.conditions
        assert (condition.type, condition.status, condition.reason) == ("Ready", "False", "Failing")
        # Two began together; the others 0.2, 0.4, 0.8 s and so on apart, not as fast as they go.
        assert len(cluster.made) <= 3 + math.log2(1 + (time.monotonic() - began) / 0.2)
        cluster.image_error = None
        await cluster.pool(size=2, image="python:3.13")
        await cluster.until(lambda: cluster.pools["p"].status.ready == 2, "the new template works")
        await cluster.until(lambda: cluster.pools["p"].status.message is None, "and the complaint is gone")


async def test_a_pool_of_a_registry_that_is_not_allowed_starts_nothing_and_says_why(cluster: Cluster) -> None:
    async with cluster.controlled():
        await cluster.pool(size=2, image="10.0.0.1:5000/x")
        await cluster.until(lambda: "p" in cluster.pools and cluster.pools["p"].status.message, "it says why")
        assert "'10.0.0.1:5000' is not a public host" in (cluster.pools["p"].status.message or "")
        assert cluster.made == []
        await cluster.pool(size=2)
        await cluster.until(lambda: cluster.pools["p"].status.ready == 2, "an allowed one works")
    async with cluster.controlled(registries=["10.0.0.1:5000"]):
        await cluster.pool("q", size=1, image="10.0.0.1:5000/x")
        await cluster.until(lambda: len(cluster.warm("q")) == 1, "an operator's registry is allowed")


async def test_a_pool_without_an_image_starts_pods_only_where_claims_bring_one(cluster: Cluster) -> None:
    await cluster.apply("SandboxPool", "p", {"template": {"cpu": 1}, "size": 2})
    async with cluster.controlled():
        await cluster.until(lambda: "p" in cluster.pools and cluster.pools["p"].status.message, "it says why")
        assert "slots.enabled" in (cluster.pools["p"].status.message or "")
        assert cluster.made == []
    async with cluster.controlled(images_directory="/var/lib/sandlot/images"):
        await cluster.until(lambda: cluster.pools["p"].status.ready == 2, "it is filled")
        await cluster.until(lambda: cluster.pools["p"].status.message is None, "and the complaint is gone")
        for name in cluster.warm("p"):
            annotations = cluster.pods[name].metadata.annotations
            assert annotations[ANNOTATION_LAYS_IMAGES] == "true"
            assert decode(annotations[ANNOTATION_TEMPLATE]).image == ""


async def test_a_roll_has_no_outage_and_asks_every_old_one(cluster: Cluster) -> None:
    async with cluster.controlled():
        await cluster.pool(size=3)
        await cluster.until(lambda: len(cluster.warm()) == 3, "three are warm")
        old, least = cluster.warm(), 3

        def rolled() -> bool:
            nonlocal least
            least = min(least, len(cluster.warm()))
            return len(cluster.warm()) == 3 and not set(old) & set(cluster.pods)

        await cluster.pool(size=3, image="python:3.13")
        await cluster.until(rolled, "all are new")
        assert least == 3
        assert sorted(cluster.sidecars.asked) == old
        assert len(cluster.made) == 6


async def test_a_smaller_pool_spares_the_one_that_is_being_claimed(cluster: Cluster) -> None:
    """And asks one again at once that did not answer."""
    async with cluster.controlled():
        await cluster.pool(size=3, reuse=NEVER)
        await cluster.until(lambda: len(cluster.warm()) == 3, "three are warm")
        claimed = cluster.warm()[0]
        await cluster.claim(claimed, record=False)
        cluster.sidecars.failing = {cluster.warm()[1]}
        await cluster.pool(size=0, reuse=NEVER)
        await cluster.until(lambda: list(cluster.pods) == [claimed], "the others are gone")
        await cluster.until(lambda: cluster.pools["p"].status.claimed == 1, "this one is claimed")
        assert claimed in cluster.sidecars.asked


async def test_a_deleted_pool_leaves_the_claimed_ones(cluster: Cluster) -> None:
    async with cluster.controlled():
        await cluster.pool(size=2, reuse=NEVER)
        await cluster.until(lambda: len(cluster.warm()) == 2, "two are warm")
        claimed = cluster.warm()[0]
        name = await cluster.claim(claimed)
        await cluster.delete(paths.pools(cluster.namespace, "p"))
        await cluster.until(lambda: list(cluster.pods) == [claimed], "the unclaimed are gone")
        await cluster.until(lambda: name in cluster.sandboxes, "its record is there")
        assert cluster.sandboxes[name].status.phase != "Ended"


async def test_a_dead_warm_pod_is_replaced(cluster: Cluster) -> None:
    async with cluster.controlled():
        await cluster.pool(size=1)
        await cluster.until(lambda: len(cluster.warm()) == 1, "one is warm")
        (name,) = cluster.warm()
        await cluster.dies(name, "sidecar", code=137)
        await cluster.until(lambda: cluster.warm() and name not in cluster.pods, "another is")


@pytest.mark.parametrize("template", [{"image": "python:3.12"}, {}], ids=["its image", "any image"])
async def test_autoscaling_follows_what_the_pool_was_too_small_for(
    cluster: Cluster, template: dict[str, str]
) -> None:
    cluster.start_seconds = 1.0
    async with cluster.controlled(images_directory="/images"):
        spec = {"template": template, "minSize": 1, "maxSize": 4}
        await cluster.apply("SandboxPool", "p", spec)
        await cluster.until(lambda: len(cluster.warm()) == 1, "the least is warm")
        for number in range(20):
            await cluster.sandbox(f"i-{number:016x}")
        await cluster.until(lambda: len(cluster.warm()) >= 3, "more are kept")
        await cluster.until(lambda: cluster.pools["p"].status.size in (3, 4), "the status says so")


async def test_a_lost_node_s_warm_pods_go_though_it_never_says_so(cluster: Cluster) -> None:
    async with cluster.controlled(node_grace=1.0):
        await cluster.pool(size=2)
        await cluster.until(lambda: len(cluster.warm()) == 2, "two are warm")
        first, second = cluster.warm()
        cluster.confirms = False
        # Kubernetes takes one of them away itself.
        await cluster.delete(paths.pods(cluster.namespace, first))
        await cluster.until(lambda: cluster.pods[first].metadata.deletion_timestamp, "it is on its way out")
        await cluster.node_says(cluster.nodes[0], "Unknown")
        await cluster.until(lambda: not {first, second} & cluster.pods.keys(), "both are gone")


async def test_two_controllers_race_and_nothing_is_made_twice(cluster: Cluster) -> None:
    controllers = [cluster.controller() for _ in range(2)]
    tasks = [asyncio.create_task(one.run()) for one in controllers]
    try:
        await cluster.pool(size=5, reuse=NEVER)
        await cluster.until(lambda: len(cluster.warm()) == 5, "five are warm")
        assert sum(one.working.is_set() for one in controllers) == 1
        # The one that works ends in order; the other takes over and finds everything.
        leader = next(number for number, one in enumerate(controllers) if one.working.is_set())
        tasks[leader].cancel()
        await asyncio.wait_for(controllers[1 - leader].working.wait(), 60)
        assert len(cluster.made) == 5
        await cluster.claim(cluster.warm()[0])
        await cluster.until(
            lambda: len(cluster.made) >= 6 and len(cluster.warm()) == 5, "the other one works"
        )
        assert len(cluster.made) == 6
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


async def test_a_restart_in_the_middle_of_filling_makes_no_more(cluster: Cluster) -> None:
    async with cluster.controlled(starts_per_node=2):
        await cluster.pool(size=10)
        await cluster.until(lambda: len(cluster.made) >= 4, "some are there")
    async with cluster.controlled(starts_per_node=2):
        await cluster.until(lambda: len(cluster.warm()) == 10, "ten are warm")
        await cluster.until(lambda: cluster.pools["p"].status.ready == 10, "and told of")
    assert len(cluster.made) == 10
    assert cluster.sidecars.asked == []
