"""The idempotency key of a group: one group also while it waits, after a restart, and free again after it failed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sandlot_gateway.engine import group_members

from tests.gateway.conftest import Running, running
from tests.gateway.group_calls import HOST, ask_for_group, create_group, ids_of, nothing_left
from tests.gateway.warm_pool import warmed
from tests.waiting import until


async def test_a_key_is_one_group_also_while_it_waits(box: Running) -> None:
    box.machine.hold_ready = asyncio.Event()
    pending = await create_group(box, 3, idempotency_key="k", wait_seconds=0)
    assert (pending["status"], pending["sandboxes"]) == ("PENDING", [])
    assert pending["queuePosition"] == 1
    assert (await box.client.get(f"/api/v1/group/{pending['id']}")).json()["status"] == "PENDING"
    asked = [
        asyncio.create_task(create_group(box, 3, idempotency_key="k", wait_seconds=25)) for _ in range(5)
    ]
    other_size = await ask_for_group(box, [HOST], idempotency_key="k")
    assert other_size.status_code == 409
    box.machine.hold_ready.set()
    groups = [await task for task in asked]
    assert len({tuple(ids_of(group)) for group in groups}) == 1
    assert ids_of(await create_group(box, 3, idempotency_key="k")) == ids_of(groups[0])
    assert len(box.machine.claimed()) == 3
    other = await ask_for_group(box, [{**HOST, "count": 3}], key="key-b", idempotency_key="k")
    assert set(ids_of(other.json())).isdisjoint(ids_of(groups[0]))


async def test_a_gateway_that_restarts_finds_the_group_of_a_key(state_dir, machine) -> None:
    async with running(state_dir, machine) as box:
        before = ids_of(await create_group(box, 3, idempotency_key="k"))
    async with running(state_dir, machine) as box:
        assert ids_of(await create_group(box, 3, idempotency_key="k")) == before
        assert len(machine.claimed()) == 3


async def test_a_group_of_which_a_part_runs_may_wait_for_its_turn(
    state_dir, machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_more_room(claim: dict[str, Any]) -> None:
        machine.room = 2

    async with running(state_dir, machine, spare_seconds=0.0, drain=0.1) as box:
        machine.hold_ready = asyncio.Event()
        await create_group(box, 3, idempotency_key="k", wait_seconds=0)
        await until(lambda: len(machine.sidecars) == 3)
        *_, lost = machine.sidecars.values()
        lost.before_claim, lost.lose_answers = no_more_room, 100
        machine.hold_ready.set()
        await until(lambda: len(box.gateway.directory.list(tenant="alpha", status="RUNNING").sandboxes) == 2)
        await until(lambda: len(machine.instances) == 2)
    before = {sidecar.claim["sandbox_id"] for sidecar in machine.claimed()}
    monkeypatch.setattr(group_members, "PATIENCE", 0.2)
    monkeypatch.setattr(group_members, "_LOOK_EVERY", 0.05)
    async with running(state_dir, machine, spare_seconds=0.0) as box:
        machine.room = 3
        ahead = asyncio.create_task(
            create_group(box, 2, idempotency_key="ahead", wait_seconds=25, deadline_seconds=60)
        )
        await until(lambda: len(machine.instances) == 3)
        waits = await create_group(box, 3, idempotency_key="k", wait_seconds=1)
        assert (waits["status"], waits["queuePosition"]) == ("PENDING", 2), waits
        machine.room = 5
        assert (await ahead)["status"] == "RUNNING"
        after = await create_group(box, 3, idempotency_key="k", wait_seconds=25)
        assert after["status"] == "RUNNING", after
        assert before < set(ids_of(after))


async def test_the_key_of_a_group_that_failed_is_free_also_after_a_restart(state_dir, machine) -> None:
    go_on = asyncio.Event()

    async def slow(claim: dict[str, Any]) -> None:
        await go_on.wait()

    async with running(state_dir, machine) as box:
        await warmed(box)
        next(iter(box.machine.sidecars.values())).before_claim = slow
        answer = await ask_for_group(
            box, [{**HOST, "count": 3}], idempotency_key="k", deadline_seconds=5, wait_seconds=25
        )
        assert answer.status_code == 503
        assert "2 of 3 sandboxes ran" in answer.json()["detail"]
        go_on.set()
        await nothing_left(box)
    async with running(state_dir, machine) as box:
        assert len((await create_group(box, 3, idempotency_key="k"))["sandboxes"]) == 3
