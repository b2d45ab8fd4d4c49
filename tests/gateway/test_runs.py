"""The run that a create names: who shows it, what it is refused for, and what it shares with its tenant's other runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from tests.gateway.conftest import API, Running, running
from tests.gateway.machine import Machine
from tests.waiting import until


async def listed(box: Running, **query: str) -> list[str]:
    answer = await box.client.get(f"{API}/sandbox", params=query)
    assert answer.status_code == 200, answer.text
    return [one["name"] for one in answer.json()["sandboxes"]]


async def test_a_sandbox_shows_its_run_and_is_listed_by_it(box: Running) -> None:
    made = await box.create(name="one", run="Grpo_1.7-b")
    await box.create(name="other", run="sft")
    assert (await box.create(name="none"))["run"] is None
    assert made["run"] == "Grpo_1.7-b"
    assert (await box.client.get(f"{API}/sandbox/{made['id']}")).json()["run"] == "Grpo_1.7-b"
    assert await listed(box, run="Grpo_1.7-b") == ["one"]
    assert await listed(box, run="unknown") == []
    assert await listed(box) == ["none", "other", "one"]


@pytest.mark.parametrize("name", ["", "a" * 64, "with blank", "a/b", "é", "a\n"])
async def test_a_name_that_is_none_is_a_422_that_says_what_would_be_one(box: Running, name: str) -> None:
    for answer in (
        await box.client.post(f"{API}/sandbox", json={"docker_image": "host", "run": name}),
        await box.client.get(f"{API}/sandbox", params={"run": name}),
    ):
        assert answer.status_code == 422
        told = "must be 1 to 63 of the characters A-Z a-z 0-9 . _ -"
        assert answer.json()["detail"] == f"run: {told}"
        assert answer.json()["errors"] == [{"param": "run", "details": told}]


async def test_it_outlives_the_gateway_also_of_a_create_that_waits(state_dir: Path, machine: Machine) -> None:
    async with running(state_dir, machine) as box:
        await box.create(name="runs", run="r")
        machine.hold_ready = asyncio.Event()
        await box.create(name="waits", run="r", wait_seconds=0)
    machine.hold_ready.set()
    async with running(state_dir, machine) as box:
        assert await listed(box, run="r") == ["waits", "runs"]


async def test_a_retry_has_the_run_of_the_first_request(box: Running) -> None:
    made = await box.create(idempotency_key="k", run="r")
    again = await box.create(idempotency_key="k", run="another")
    assert (again["id"], again["run"]) == (made["id"], "r")


async def test_a_run_that_fills_the_queue_keeps_no_other_run_of_its_tenant_out(
    state_dir: Path, machine: Machine
) -> None:
    async with running(state_dir, machine, max_waiting=20, max_starts=1) as box:
        machine.hold_ready = asyncio.Event()

        def create(run: str) -> asyncio.Task[httpx.Response]:
            fields = {"docker_image": "host", "run": run, "wait_seconds": 25}
            return asyncio.create_task(box.client.post(f"{API}/sandbox", json=fields))

        held = [create("a") for _ in range(20)]
        await until(lambda: box.gateway.supply.waiting == 20)
        refused = await create("a")
        assert refused.status_code == 503
        assert refused.json()["detail"] == (
            "the queue for new sandboxes is full (20 waiting, max_waiting is 20): tenant 'alpha' has 20 of them, its "
            "run 'a' 20, and may have 2 until there is room; try again after Retry-After, or create fewer at a time"
        )
        held.append(create("b"))
        await until(lambda: box.gateway.supply.waiting == 21)
        [waits] = (await box.client.get(f"{API}/sandbox", params={"run": "b"})).json()["sandboxes"]
        told = (await box.client.get(f"{API}/sandbox/{waits['id']}")).json()
        assert told["queuePosition"] == 2
        # It has its share, and no more than that.
        assert "its run 'b' 1, and may have 1 until" in (await create("b")).json()["detail"]
        metrics = await box.metrics()
        assert 'run="' not in metrics
        machine.hold_ready.set()
        assert {(await task).json()["status"] for task in held} == {"RUNNING"}
