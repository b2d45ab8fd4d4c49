"""A leader that ends gives its Lease up, also when its end cuts off a renewal."""

from __future__ import annotations

import asyncio
import json

import pytest
from sandlot_controller.leader import Leader
from sandlot_kube.client import KubeClient

from tests.controller.cluster import Cluster

pytestmark = pytest.mark.programs

NAME = "held-by-a-test"


class LateAnswers(KubeClient):
    """The answers to writes do not arrive while `late`; what they answer is written."""

    def __init__(self, of: KubeClient) -> None:
        super().__init__(of.access)
        self.late = False
        self.written = asyncio.Event()

    async def request(self, method: str, path: str, **more: object) -> bytes:
        answer = await super().request(method, path, **more)  # type: ignore[arg-type]
        if self.late and method == "PUT":
            self.written.set()
            await asyncio.Event().wait()
        return answer


async def test_a_renewal_that_the_end_cuts_off_keeps_nobody_waiting(cluster: Cluster) -> None:
    client = LateAnswers(cluster.client)
    leader = Leader(client, namespace=cluster.namespace, name=NAME, identity="one", seconds=15.0)
    try:
        await leader.acquire()
        client.late = True
        holding = asyncio.create_task(leader.hold())
        await client.written.wait()
        holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)
        client.late = False
        await leader.release()
    finally:
        await client.close()
    path = f"/apis/coordination.k8s.io/v1/namespaces/{cluster.namespace}/leases/{NAME}"
    lease = json.loads(await cluster.client.request("GET", path))
    assert not lease["spec"].get("holderIdentity")
