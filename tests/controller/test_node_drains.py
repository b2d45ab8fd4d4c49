"""A cordoned node empties: its warm pods go once others are there, and the claimed ones end with their owners."""

from __future__ import annotations

import pytest
from sandlot_controller.act.drains import is_drained
from sandlot_controller.world.nodes import Node, NodeSpec, Taint
from sandlot_kube import paths
from sandlot_kube.client import MERGE_PATCH
from sandlot_kube.objects import Metadata, Toleration

from tests.controller.cluster import Cluster

TAINT = "ToBeDeletedByClusterAutoscaler"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (NodeSpec(), False),
        (NodeSpec(unschedulable=True), True),
        (NodeSpec(taints=[Taint(TAINT, effect="NoSchedule")]), True),
        (NodeSpec(taints=[Taint("karpenter.sh/disrupted", effect="NoSchedule")]), True),
        (NodeSpec(taints=[Taint("nvidia.com/gpu", effect="NoSchedule")]), False),
        (NodeSpec(taints=[Taint("DeletionCandidateOfClusterAutoscaler", effect="PreferNoSchedule")]), False),
    ],
)
def test_what_counts_as_drained(spec: NodeSpec, expected: bool) -> None:
    assert is_drained(Node(Metadata(name="n"), spec)) is expected
    assert not is_drained(Node(Metadata(name="n"), spec), [Toleration(operator="Exists")])


def on(cluster: Cluster, node: str) -> set[str]:
    return {name for name, pod in cluster.pods.items() if pod.spec.node_name == node}


@pytest.mark.programs
async def test_a_cordoned_node_empties_and_its_owned_pods_end_with_their_owners(cluster: Cluster) -> None:
    (old,) = cluster.nodes
    async with cluster.controlled():
        await cluster.pool(size=2)
        await cluster.until(lambda: len(cluster.warm()) == 2, "the pool is filled")
        owned, warm = cluster.warm()
        name = await cluster.claim(owned, generation=1)
        await cluster.until(lambda: len(cluster.warm()) == 2, "it is replaced")
        new = await cluster.node()
        await cluster.cordon(old)
        await cluster.until(lambda: on(cluster, old) == {owned}, "the warm ones are gone from there")
        await cluster.until(lambda: owned in cluster.sidecars.last, "the owned one is told")
        assert len(cluster.warm()) == 2
        assert set(cluster.warm()) <= on(cluster, new)
        assert warm not in cluster.pods
        assert cluster.sandboxes[name].status.phase != "Ended"
        assert owned not in cluster.sidecars.told


@pytest.mark.programs
async def test_an_autoscaler_s_taint_empties_a_node_whose_short_sandbox_has_no_record(
    cluster: Cluster,
) -> None:
    (old,) = cluster.nodes
    async with cluster.controlled():
        await cluster.pool(size=1)
        await cluster.until(lambda: len(cluster.warm()) == 1, "the pool is filled")
        (owned,) = cluster.warm()
        await cluster.claim(owned, record=False, generation=1)
        await cluster.node()
        taint = {"key": TAINT, "value": "1", "effect": "NoSchedule"}
        await cluster.client.request(
            "PATCH", paths.nodes(old), body={"spec": {"taints": [taint]}}, content_type=MERGE_PATCH
        )
        await cluster.until(lambda: owned in cluster.sidecars.last, "it is to end with its owner")
        assert owned in cluster.pods


@pytest.mark.programs
async def test_a_sidecar_of_an_earlier_build_spares_its_owner(cluster: Cluster) -> None:
    (node,) = cluster.nodes
    cluster.sidecars.know_last = False
    async with cluster.controlled():
        await cluster.pool(size=1)
        await cluster.until(lambda: len(cluster.warm()) == 1, "the pool is filled")
        (owned,) = cluster.warm()
        await cluster.claim(owned, generation=1)
        await cluster.cordon(node)
        await cluster.until(lambda: owned in cluster.sidecars.asked, "it is asked")
        assert (cluster.sidecars.told, owned in cluster.pods) == ({}, True)


@pytest.mark.programs
async def test_without_room_elsewhere_a_drained_pool_still_leaves(cluster: Cluster) -> None:
    (old,) = cluster.nodes
    async with cluster.controlled():
        await cluster.pool(size=1)
        await cluster.until(lambda: len(cluster.warm()) == 1, "the pool is filled")
        (warm,) = cluster.warm()
        await cluster.cordon(old)
        await cluster.until(lambda: warm not in cluster.pods, "it is gone though nothing replaces it")
        await cluster.cordon(old, off=True)
        await cluster.until(lambda: len(cluster.warm()) == 1, "the node serves again")
