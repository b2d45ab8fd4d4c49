"""A leader that cannot list a resource says so, and gives its Lease up; one that has listed all goes on without a watch."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from sandlot_controller.controller import Controller
from sandlot_kube import paths

from tests.controller.cluster import Cluster
from tests.controller.gaps import Gaps
from tests.controller.pages import page, shows, started
from tests.waiting import until

pytestmark = pytest.mark.programs


@pytest.fixture
async def gaps(cluster: Cluster) -> AsyncIterator[Gaps]:
    gaps = Gaps(cluster.client)
    try:
        yield gaps
    finally:
        await gaps.close()


async def holder(cluster: Cluster) -> str:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{cluster.namespace}/leases"
    leases = json.loads(await cluster.client.request("GET", path))["items"]
    return next((one["spec"].get("holderIdentity", "") for one in leases), "")


async def unready(controller: Controller) -> bool:
    answer = await page(controller, "readyz")
    return answer.status_code == 200 and answer.text.startswith("cannot read /api/v1/nodes: ")


@pytest.mark.parametrize("status", [403, 500])
async def test_one_that_cannot_list_leaves_the_lease_to_another(
    cluster: Cluster, gaps: Gaps, status: int
) -> None:
    gaps.refused[paths.nodes()] = status
    cluster.seen_through = gaps
    async with started(cluster.controller(list_timeout=0.5)) as first:
        await until(lambda: gaps.refusals > 0)
        cluster.seen_through = cluster.client
        async with started(cluster.controller()) as second:
            await asyncio.wait_for(second.working.wait(), 60)
            assert await holder(cluster) == second.identity
            assert not first.working.is_set()
            # A standby now, which could not lead either.
            await until(lambda: unready(first), pause=0.1)


async def test_one_that_cannot_list_says_what_and_why(cluster: Cluster, gaps: Gaps) -> None:
    gaps.refused[paths.nodes()] = 403
    cluster.seen_through = gaps
    async with started(cluster.controller(list_timeout=600.0)) as controller:
        await until(lambda: gaps.refusals > 0)
        answer = await page(controller, "readyz")
        assert (answer.status_code, answer.text) == (
            200,  # it can lead as well as any other
            "cannot read /api/v1/nodes: the test refuses /api/v1/nodes (status 403); "
            "check the Role and ClusterRole of the service account\n",
        )
        assert await shows(controller, "nodes", True)
        assert (await page(controller, "healthz")).status_code == 200
        gaps.refused.clear()
        await asyncio.wait_for(controller.working.wait(), 60)
        assert (await page(controller, "readyz")).text == "ok\n"
        assert await shows(controller, "nodes", False)


async def test_one_that_is_alone_leads_once_it_may_list(cluster: Cluster, gaps: Gaps) -> None:
    """It has given the Lease up, and acquires it again."""
    gaps.refused[paths.nodes()] = 403
    cluster.seen_through = gaps
    async with started(cluster.controller(list_timeout=0.5, lease_seconds=10.0)) as controller:
        await until(lambda: gaps.refusals > 0)
        await until(lambda: released(cluster))
        gaps.refused.clear()
        await asyncio.wait_for(controller.working.wait(), 60)
        assert await holder(cluster) == controller.identity


async def released(cluster: Cluster) -> bool:
    return await holder(cluster) == ""


async def test_one_that_has_listed_all_goes_on_when_a_watch_fails(cluster: Cluster, gaps: Gaps) -> None:
    """Another one, with the same rights, could list no more."""
    cluster.seen_through = gaps
    async with cluster.controlled(list_timeout=0.05) as controller:
        gaps.break_off(paths.nodes())
        await gaps.failing.wait()
        await until(lambda: shows(controller, "nodes", True))
        assert (await page(controller, "readyz")).text.startswith("cannot read /api/v1/nodes: ")
        await cluster.pool(size=1)
        await cluster.until(cluster.warm, "a warm pod")
        assert await holder(cluster) == controller.identity
        gaps.mend()
        await until(lambda: shows(controller, "nodes", False))
        assert (await page(controller, "readyz")).text == "ok\n"
