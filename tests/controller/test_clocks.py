"""Times in resources are the API server's: a machine whose clock is an hour off judges and writes them alike."""

from __future__ import annotations

import time
from typing import Any

import pytest
from sandlot_controller.act.sidecars import Sidecars
from sandlot_controller.controller import Controller
from sandlot_kube import clock, paths
from sandlot_kube.client import KubeClient

from tests.controller.cluster import Cluster

pytestmark = pytest.mark.programs


def promised(name: str, *, seconds: float) -> dict[str, Any]:
    until = clock.text(time.time() + seconds)
    return {"sandboxId": name, "tenant": "t", "state": "Pending", "waitingUntil": until}


def verdict(cluster: Cluster, name: str) -> str | None:
    sandbox = cluster.sandboxes.get(name)
    return None if sandbox is None else sandbox.status.verdict


@pytest.mark.parametrize("off", [-3600.0, 3600.0])
async def test_a_controllers_clock_decides_nothing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, off: float
) -> None:
    monkeypatch.setattr("sandlot_controller.act.sandbox_facts._RENEWAL", 1.0)
    client = KubeClient(cluster.client.access, wall=lambda: time.time() + off)
    controllers: list[Controller] = []

    def controller(**values: Any) -> Controller:
        controllers.append(Controller(client, cluster.settings(**values), sidecars=Sidecars(port=1)))
        return controllers[0]

    monkeypatch.setattr(cluster, "controller", controller)
    try:
        async with cluster.controlled(retention=1800.0):
            await cluster.sandbox("sb-kept", **promised("sb-kept", seconds=600))
            await cluster.sandbox("sb-ended", **promised("sb-ended", seconds=600))
            await cluster.end("sb-ended")
            await cluster.sandbox("sb-old", **promised("sb-old", seconds=600))
            await cluster.end("sb-old", at=time.time() - 2000.0)
            await cluster.sandbox("sb-lost", **promised("sb-lost", seconds=1))
            await cluster.until(lambda: verdict(cluster, "sb-lost") == "start_failed", "its gateway is lost")
            await cluster.until(lambda: "sb-old" not in cluster.sandboxes, "it was kept for long enough")
            at = clock.seconds(cluster.sandboxes["sb-lost"].status.ended_at)
            assert at is not None
            assert abs(at - time.time()) < 60
            assert cluster.sandboxes["sb-kept"].status.phase == "Pending"
            assert verdict(cluster, "sb-ended") == "deleted"
    finally:
        await client.close()


@pytest.mark.parametrize("off", [-3600.0, 0.0, 3600.0])
async def test_a_client_knows_the_api_servers_time(cluster: Cluster, off: float) -> None:
    client = KubeClient(cluster.client.access, wall=lambda: time.time() + off)
    try:
        await client.request("GET", paths.pods(cluster.namespace))
        assert abs(client.now() - time.time()) < 60
        assert abs(client.local(time.time()) - (time.time() + off)) < 60
    finally:
        await client.close()
