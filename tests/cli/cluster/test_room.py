"""How many more pods of a pool fit counts whatever its pods request: GPUs and disk, too."""

from __future__ import annotations

import pytest
from sandlot.cli.cluster.world import CLUSTER, Kind

from tests.cli.cluster.breaks import both, changed, requested, settings, tainted, with_gpus
from tests.cli.cluster.worlds import Break, Cluster


@pytest.mark.parametrize(
    ("breaks", "said"),
    [
        (with_gpus("8", label="H100"), "2 more pods fit, which request 0.11 cores, 0.28 GiB and 4 nvidia.com/gpu each"),
        (
            both(
                with_gpus("8", label="H100"),
                tainted("worker", key="nvidia.com/gpu", value="present", effect="NoSchedule"),
            ),
            "2 more pods fit, which request 0.11 cores, 0.28 GiB and 4 nvidia.com/gpu each",
        ),
        (
            both(with_gpus("8", label="H100"), requested(gpus=7)),
            "0 more pods fit, which request 0.11 cores, 0.28 GiB and 4 nvidia.com/gpu each",
        ),
        (
            both(
                settings("controller", DISK_SHARE="0.2"),
                changed(Kind.NODES, CLUSTER, "worker", status={"allocatable": {"ephemeral-storage": "3Gi"}}),
            ),
            "3 more pods fit, which request 0.11 cores, 0.28 GiB and 1.00 GiB of disk each",
        ),
    ],
    ids=["GPUs", "a taint of the GPUs", "too few GPUs", "disk"],
)  # fmt: skip
def test_room_counts_whatever_the_pods_request(breaks: Break, said: str) -> None:
    cluster = Cluster()
    breaks(cluster)
    found = {one.name: one for one in cluster.findings()}
    assert found["nodes: room for pool default"].detail == said
