"""A gateway on Kubernetes whose end is hurried: it writes the records that it owes, and gives up those it cannot write."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sandlot_gateway import ending
from sandlot_gateway.stop_times import HURRIED
from sandlot_kube import paths

from tests.gateway.kubernetes_world import NEEDS_API_SERVER, TEMPLATE, World
from tests.waiting import SECONDS

pytestmark = NEEDS_API_SERVER


async def test_the_record_of_a_young_claim_is_written(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    # A loaded API server may take longer than a hurried end has.
    monkeypatch.setattr(ending, "HURRIED", replace(HURRIED, backend=SECONDS))
    async with world.gateway("a") as a:
        await world.kubelet.pod(TEMPLATE, pool="default", reused=True)  # a young one has no record
        await a.warm()
        made = await a.made()
        assert world.server.call("GET", paths.sandboxes(world.namespace))["items"] == []
        a.ending.ask()
        a.ending.ask()
        assert await a.task == 0
    found = world.server.call("GET", paths.sandboxes(world.namespace))["items"]
    assert [one["spec"]["sandboxId"] for one in found] == [made["id"]]


async def test_records_that_the_api_server_does_not_take_are_given_up(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async with world.gateway("a") as a:
        await world.kubelet.pod(TEMPLATE, pool="default", reused=True)
        await a.warm()
        await a.made()
        with world.server.frozen():
            a.ending.ask()
            a.ending.ask()
            assert await a.task == 0
    assert "gave up 1 records that the API server did not take in time" in caplog.text
