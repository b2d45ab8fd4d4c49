"""Sandboxes on a real API server: a pod at once, an end that is kept for a while, and nothing left behind."""

from __future__ import annotations

import asyncio
import time

import pytest
from sandlot_kube import clock, ends, paths
from sandlot_kube.client import MERGE_PATCH
from sandlot_kube.errors import KubeError

from tests.controller.cluster import Cluster
from tests.controller.objects import NEVER
from tests.controller.sandboxes import ID, cold, ended, running
from tests.kube.apiserver import ApiServer

pytestmark = pytest.mark.programs


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
        await cluster.until(lambda: cluster.sandboxes.get(ID), "it was there")
        path = paths.sandboxes(cluster.namespace, ID) + "/status"
        body = {"status": {"phase": "Ended", "verdict": "deleted", "endedAt": clock.text(time.time())}}
        await cluster.client.request("PATCH", path, body=body, content_type=MERGE_PATCH)
        await cluster.until(lambda: not cluster.sandboxes, "it is gone")


async def test_deleting_a_warm_resource_deletes_its_pod(cluster: Cluster) -> None:
    async with cluster.controlled():
        await cluster.pool(size=1, reuse=NEVER)
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


async def test_an_outage_of_the_api_server_delays_and_loses_nothing(
    cluster: Cluster, resources: ApiServer
) -> None:
    async with cluster.controlled(lease_seconds=150.0):
        await cluster.pool(size=2, reuse=NEVER)
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
            lambda: len(cluster.made) >= 5 and len(cluster.warm()) == 2, "pools are filled again"
        )
    assert len(cluster.made) == 5
