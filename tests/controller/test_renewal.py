"""Warm pods are renewed when a new controller would make them otherwise, as after an upgrade."""

from __future__ import annotations

import pytest
from sandlot_controller.plan.pod import ANNOTATION_BUILD

from tests.controller.cluster import Cluster

pytestmark = pytest.mark.programs


async def test_an_upgrade_renews_what_is_warm_and_a_restart_does_not(cluster: Cluster) -> None:
    async with cluster.controlled():
        await cluster.pool(size=2)
        await cluster.until(lambda: len(cluster.warm()) == 2, "two are warm")
    old = cluster.warm()
    async with cluster.controlled():
        await cluster.pool(size=3)
        await cluster.until(lambda: len(cluster.warm()) == 3, "one more, beside those two")
        assert set(old) < set(cluster.warm())
        old = cluster.warm()
    async with cluster.controlled(sidecar_image="sandlot/sidecar:next"):
        await cluster.until(
            lambda: len(cluster.warm()) == 3 and not set(old) & set(cluster.pods), "all have the new sidecar"
        )
    builds = {pod.metadata.annotations[ANNOTATION_BUILD] for pod in cluster.pods.values()}
    assert len(builds) == 1
