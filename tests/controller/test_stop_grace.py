"""A pod goes after its sidecar: a start command that is being stopped has its grace, and a dead sidecar holds up nothing."""

from __future__ import annotations

import json

import pytest
from sandlot_contract.stop_grace import MAX_STOP_GRACE
from sandlot_kube import paths

from tests.controller.cluster import Cluster
from tests.controller.sandboxes import ID, cold, ended
from tests.waiting import until

pytestmark = pytest.mark.programs

OTHER = "i-ffffffffffffffff"


async def goes(cluster: Cluster, name: str) -> None:
    await cluster.until(lambda: name not in cluster.pods, f"the pod {name} is gone")


async def stays_while_another_goes(cluster: Cluster, pod: str) -> None:
    """Another sandbox ends later, with no start command, and its pod goes."""
    await cluster.end(OTHER)
    await goes(cluster, OTHER)
    assert cluster.pods[pod].metadata.deletion_timestamp is None


async def goes_after_its_sidecar(cluster: Cluster, pod: str) -> None:
    await stays_while_another_goes(cluster, pod)
    await cluster.dies(pod, "sidecar", code=0, reason="Completed")
    await goes(cluster, pod)


async def grace(cluster: Cluster, name: str = ID) -> int | None:
    body = await cluster.client.request("GET", paths.pods(cluster.namespace, name))
    return json.loads(body)["metadata"].get("deletionGracePeriodSeconds")


async def is_cut(cluster: Cluster, name: str) -> bool:
    return await grace(cluster, name) == 1


async def test_the_pod_of_a_deleted_sandbox_stays_until_its_start_command_has_stopped(
    cluster: Cluster,
) -> None:
    async with cluster.controlled():
        await cold(cluster)
        await cold(cluster, OTHER)
        cluster.sidecars.stopping.add(ID)
        await cluster.end(ID)
        await until(lambda: cluster.sidecars.told.get(ID) == "deleted")
        await goes_after_its_sidecar(cluster, ID)


async def test_so_does_that_of_a_claim_whose_record_is_deleted(cluster: Cluster) -> None:
    async with cluster.controlled():
        await cold(cluster, OTHER)
        await cluster.pool(size=1)
        await cluster.until(cluster.warm, "one is warm")
        (pod,) = cluster.warm()
        name = await cluster.claim(pod)
        await cluster.until(lambda: name in cluster.sandboxes, "its record is there")
        cluster.sidecars.stopping.add(pod)
        await cluster.delete(paths.sandboxes(cluster.namespace, name))
        await until(lambda: cluster.sidecars.told.get(pod) == "deleted")
        await goes_after_its_sidecar(cluster, pod)


async def test_so_does_that_of_a_claim_that_no_record_ever_named(cluster: Cluster) -> None:
    async with cluster.controlled():
        await cold(cluster, OTHER)
        await cluster.pool(size=1)
        await cluster.until(cluster.warm, "one is warm")
    (pod,) = cluster.warm()
    await cluster.claim(pod, record=False)
    cluster.sidecars.stopping.add(pod)
    async with cluster.controlled(record_grace=0.5):
        await until(lambda: cluster.sidecars.told.get(pod) == "deleted")
        await goes_after_its_sidecar(cluster, pod)


async def test_so_does_a_reused_one_that_its_pool_retires_meanwhile(cluster: Cluster) -> None:
    async with cluster.controlled(surplus_grace=0.1):
        await cold(cluster, OTHER)
        await cluster.pool(size=1, reuse={"policy": "tenant"})
        await cluster.until(cluster.warm, "one is warm")
        (pod,) = cluster.warm()
        cluster.sidecars.stopping.add(pod)  # its gateway has it end after its sandbox
        await cluster.pool(size=0, reuse={"policy": "tenant"})
        await until(lambda: pod in cluster.sidecars.asked)
        await goes_after_its_sidecar(cluster, pod)


async def test_the_next_leader_waits_for_it_too(cluster: Cluster) -> None:
    cluster.sidecars.stopping.add(ID)
    async with cluster.controlled():
        await cold(cluster)
        await cold(cluster, OTHER)
        await cluster.end(ID)
        await until(lambda: ID in cluster.sidecars.told)
    cluster.sidecars.told.clear()
    async with cluster.controlled():
        await until(lambda: ID in cluster.sidecars.told)
        await stays_while_another_goes(cluster, ID)


async def test_a_node_that_is_silent_for_a_moment_cuts_no_grace(cluster: Cluster) -> None:
    cluster.sidecars.stopping.add(ID)
    async with cluster.controlled(node_grace=60.0):
        await cold(cluster)
        await cold(cluster, OTHER)
        await cluster.node_says(cluster.nodes[0], "Unknown")
        await cluster.end(ID)
        await until(lambda: ID in cluster.sidecars.told)
        await stays_while_another_goes(cluster, ID)


async def test_a_node_that_is_silent_for_long_has_the_pod_deleted_without_its_word(cluster: Cluster) -> None:
    cluster.confirms = False
    async with cluster.controlled(node_grace=1.0):
        await cold(cluster)
        await cluster.end(ID)
        await cluster.until(lambda: cluster.pods[ID].metadata.deletion_timestamp, "its deletion is asked for")
        await cluster.node_says(cluster.nodes[0], "Unknown")
        await goes(cluster, ID)


async def test_so_has_that_of_a_deleted_sandbox(cluster: Cluster) -> None:
    cluster.confirms = False
    async with cluster.controlled(node_grace=1.0):
        await cold(cluster)
        await cluster.delete(paths.sandboxes(cluster.namespace, ID))
        await cluster.until(lambda: cluster.pods[ID].metadata.deletion_timestamp, "its deletion is asked for")
        await cluster.node_says(cluster.nodes[0], "Unknown")
        await goes(cluster, ID)


async def test_the_next_leader_does_so_too(cluster: Cluster) -> None:
    cluster.confirms = False
    async with cluster.controlled():
        await cold(cluster)
        await cluster.delete(paths.sandboxes(cluster.namespace, ID))
        await cluster.until(lambda: cluster.pods[ID].metadata.deletion_timestamp, "its deletion is asked for")
    await cluster.node_says(cluster.nodes[0], "Unknown")
    async with cluster.controlled(node_grace=1.0):
        await goes(cluster, ID)


async def test_while_its_node_is_silent_for_a_moment_only_it_is_left_to_it(cluster: Cluster) -> None:
    cluster.confirms = False
    async with cluster.controlled(node_grace=60.0):
        await cold(cluster)
        await cold(cluster, OTHER)
        await cluster.delete(paths.sandboxes(cluster.namespace, ID))
        await cluster.until(lambda: cluster.pods[ID].metadata.deletion_timestamp, "its deletion is asked for")
        await cluster.node_says(cluster.nodes[0], "Unknown")
        await cluster.end(OTHER)
        await cluster.until(
            lambda: cluster.pods[OTHER].metadata.deletion_timestamp, "what came later is done"
        )
        assert ID in cluster.pods


@pytest.mark.parametrize("verdict", ["oom", "sandbox_lost"])
async def test_a_lost_sandbox_has_no_grace(cluster: Cluster, verdict: str) -> None:
    cluster.sidecars.stopping.add(ID)
    async with cluster.controlled():
        await cold(cluster)
        await cluster.end(ID, verdict)
        await goes(cluster, ID)
    assert cluster.sidecars.told == {}


async def test_a_sidecar_that_is_gone_is_not_waited_for(cluster: Cluster) -> None:
    async with cluster.controlled():
        await cold(cluster)
        await cluster.pod_says(ID, podIP="127.0.0.2", podIPs=[{"ip": "127.0.0.2"}])
        await cluster.end(ID)
        await goes(cluster, ID)
        assert ended(cluster, ID, "deleted")


async def test_a_deletion_by_others_leaves_time_for_every_grace(cluster: Cluster) -> None:
    cluster.confirms = False
    async with cluster.controlled():
        await cold(cluster)
    await cluster.delete(paths.pods(cluster.namespace, ID))
    assert await grace(cluster) > MAX_STOP_GRACE


async def test_the_controllers_deletion_leaves_a_second_and_cuts_that_of_others(cluster: Cluster) -> None:
    cluster.confirms = False
    async with cluster.controlled():
        await cold(cluster)
        await cold(cluster, OTHER)
        await cluster.delete(paths.pods(cluster.namespace, ID))
        await cluster.end(OTHER)
        for name in (ID, OTHER):
            await until(lambda name=name: is_cut(cluster, name))
