"""What a sidecar tells its gateway, and what the answers make of it."""

from __future__ import annotations

import json

import pytest

from tests.sidecar.support import Sidecar, parse_frames
from tests.waiting import until

pytestmark = pytest.mark.root


async def test_ready_is_repeated_until_it_is_heard(make) -> None:
    box = Sidecar()
    box.webhooks.statuses = [500, 503, 404]
    await box.webhooks.start()
    await box.launch()
    await box.webhooks.wait("ready", count=4)
    assert [event["answered"] for event in box.webhooks.events] == [500, 503, 404, 200]
    await box.close()


async def test_an_instance_that_nobody_wants_ends_itself(make) -> None:
    box = Sidecar()
    box.webhooks.statuses = [410]
    await box.webhooks.start()
    await box.launch()
    assert await box.wait_exit() == 0
    await box.close()


async def test_an_instance_that_was_claimed_since_it_told_that_it_is_nobodys_goes_on(make) -> None:
    box = Sidecar(heartbeat=0.2)
    box.webhooks.statuses = [410]
    box.webhooks.answering.clear()
    await box.webhooks.start()
    await box.launch()
    assert (await box.webhooks.wait("ready"))["sandbox_id"] is None
    await box.claim()
    box.webhooks.answering.set()
    assert (await box.webhooks.wait("heartbeat", count=2))["phase"] == "claimed"
    box.webhooks.statuses = [410]  # this one is about its owner
    assert (await box.webhooks.wait("ended"))["verdict"] == "deleted"
    assert await box.wait_exit() == 0
    await box.close()


@pytest.mark.parametrize(
    ("told", "of_the_sandbox", "of_the_command"),
    [
        ("evicted", "evicted", "evicted"),
        ("node_lost", "node_lost", "sandbox_broken"),
        ("deadline", "deadline", "sandbox_ended"),
        ("no such verdict", "deleted", "sandbox_ended"),
        (None, "deleted", "sandbox_ended"),
    ],
)
async def test_one_that_is_told_how_its_sandbox_has_ended_tells_its_commands(
    make, told, of_the_sandbox, of_the_command
) -> None:
    box = await make(heartbeat=0.2, claim={})
    await box.op("sleep 600", id="runs", detach=True)

    async def runs() -> bool:
        return (await box.call("GET", "/v1/ops/runs")).json()["state"] == "running"

    await until(runs)
    async with box.stream("GET", "/v1/ops/runs/stream") as stream:
        box.webhooks.verdict = told
        box.webhooks.statuses = [410]
        assert (await box.webhooks.wait("ended"))["verdict"] == of_the_sandbox
        kind, end = parse_frames(await stream.aread())[-1]
    assert (kind, json.loads(end)["verdict"]) == ("x", of_the_command)
    assert await box.wait_exit() == 0


async def test_a_heartbeat_repeats_the_state(make) -> None:
    box = await make(heartbeat=0.2, claim={})
    beat = (await box.webhooks.wait("heartbeat", count=2))["phase"]
    assert beat == "claimed"
