"""A run's lease with two gateways over one API server: one fact, which both read and either may change."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from sandlot_gateway.backends.kubernetes.runs import KubernetesRuns
from sandlot_gateway.core import runs
from sandlot_gateway.core.backend import Unavailable
from sandlot_gateway.core.runs import Lease, RunId, RunRefused, RunRequest
from sandlot_kube import paths
from sandlot_kube.client import KubeClient

from tests.gateway.kubernetes_world import NEEDS_API_SERVER, TEMPLATE, Running, World
from tests.kube.apiserver import ApiServer
from tests.waiting import until

pytestmark = NEEDS_API_SERVER

RUN = RunId("Run_1")


async def test_a_lost_run_ends_its_sandboxes_at_each_gateway(world: World) -> None:
    kubelet = world.kubelet
    kubelet.make_cold = False
    async with world.gateway("a", backend={}) as one, world.gateway("b", backend={}) as other:
        await kubelet.pod(TEMPLATE, pool="default")
        for gateway in (one, other):
            await gateway.warm(1)
        body: dict[str, Any] = {"holder": "first", "grace_seconds": 60}
        old = (await one.client.put(f"/api/v1/runs/{RUN}", json=body)).json()
        body = {"holder": "second", "grace_seconds": 60, "take_over": True}
        begun = (await one.client.put(f"/api/v1/runs/{RUN}", json=body)).json()
        stale = await other.create(run_id=RUN, run_epoch=old["epoch"])
        assert (stale.status_code, stale.json()["error"]) == (409, "run_taken_over")
        made = (await other.create(run_id=RUN, run_epoch=begun["epoch"])).json()
        assert made["status"] == "RUNNING"
        renewal = {"epoch": begun["epoch"]}
        assert (await other.client.post(f"/api/v1/runs/{RUN}/renew", json=renewal)).status_code == 200
        await until(lambda: one.gateway.directory.get(made["id"]))
        body = {"holder": "third", "grace_seconds": 5, "take_over": True}
        renewal = {"epoch": (await one.client.put(f"/api/v1/runs/{RUN}", json=body)).json()["epoch"]}

        async def is_refused(gateway: Running) -> bool:
            # The sandbox's record may come before the lease, which is read once a second.
            answer = await gateway.client.post(f"/api/v1/runs/{RUN}/renew", json=renewal)
            return (answer.status_code, answer.json().get("error")) == (409, "run_lost")

        for gateway in (one, other):
            assert (await gateway.is_ended(made["id"]))["verdict"] == "run_lost"
            await until(lambda: is_refused(gateway))  # noqa: B023
        record = await kubelet.until(
            lambda: next((one for one in kubelet.sandboxes.values() if one.status.verdict), None)
        )
        assert record.status.verdict == "run_lost"


async def test_of_holders_that_begin_at_once_one_gets_the_run(apiserver: ApiServer) -> None:
    namespace = apiserver.namespace("runs")
    client = KubeClient(apiserver.access(namespace=namespace))
    again = KubeClient(apiserver.access(namespace=namespace))
    try:
        stores = [KubernetesRuns(one, namespace=namespace) for one in (client, again) for _ in range(3)]

        async def begin(number: int) -> Lease | None:
            asked = RunRequest(f"holder-{number}", 60.0)
            store = stores[number]
            try:
                return await store.change(
                    "t", RUN, lambda there: runs.begun(there, asked, tenant="t", run_id=RUN, now=store.now())
                )
            except RunRefused:
                return None

        answers = await asyncio.gather(*(begin(number) for number in range(len(stores))))
        [lease] = [one for one in answers if one is not None]
        assert await stores[5].find("t", RUN) == lease
        assert await stores[0].all() == [lease]
        assert await stores[0].change("t", RUN, lambda there: None) is None
        assert await stores[5].all() == []
        assert await stores[5].find("t", RUN) is None
    finally:
        await client.close()
        await again.close()


async def test_a_lease_that_cannot_be_read_is_there(
    apiserver: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    namespace = apiserver.namespace("runs")
    client = KubeClient(apiserver.access(namespace=namespace))
    try:
        store = KubernetesRuns(client, namespace=namespace)
        asked = RunRequest("holder", 60.0)

        def begun(there: Lease | None) -> Lease:
            return runs.begun(there, asked, tenant="t", run_id=RUN, now=store.now())

        await store.change("t", RUN, begun)
        [there] = msgspec.json.decode(await client.request("GET", paths.config_maps(namespace)))["items"]
        path = paths.config_maps(namespace, there["metadata"]["name"])
        await client.request("PUT", path, body={**there, "data": {"lease": "{"}})
        for _ in range(2):
            assert await store.all() == []
        assert caplog.text.count("cannot read the run in ConfigMap") == 1
        with pytest.raises(Unavailable, match="cannot read the run in ConfigMap"):
            await store.find("t", RUN)
        with pytest.raises(Unavailable, match="cannot read the run in ConfigMap"):
            await store.change("t", RUN, begun)
    finally:
        await client.close()
