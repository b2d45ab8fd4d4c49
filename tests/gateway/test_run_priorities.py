"""Priorities of runs over the control routes: whose creates are next, and what becomes of a change."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_gateway.core.fair_queue import Scheduling
from sandlot_gateway.core.group_turns import GroupId, GroupTurns
from sandlot_gateway.core.instances import Instance, by_template
from sandlot_gateway.core.ready import first_come
from sandlot_gateway.core.slots import Slots
from sandlot_gateway.engine.group_places import GroupPlaces
from sandlot_gateway.engine.supply import Supply
from sandlot_gateway.engine.tickets import Need

from tests.gateway.conftest import API, Running, running
from tests.gateway.machine import Machine, StubBackend
from tests.gateway.replica import TEMPLATE, TOKENS
from tests.gateway.test_run_weights import EACH, begin, first_turns, wait_all
from tests.waiting import SECONDS, until


async def test_a_run_s_priority_orders_its_creates_and_outlives_the_gateway(
    state_dir: Path, machine: Machine
) -> None:
    machine.hold_ready = asyncio.Event()
    async with running(state_dir, machine, max_starts=1) as box:
        assert (await begin(box, "train")).json()["priority"] == 0
        assert (await begin(box, "eval", priority=10)).json()["priority"] == 10
        ids = {run: await wait_all(box, [{"run_id": run}] * EACH) for run in ("train", "eval")}
        assert await first_turns(box, ids, keys={}, count=EACH) == {"eval": EACH}
        # A repeated PUT changes it, also for those that wait; none is lost.
        assert (await begin(box, "eval", priority=-10)).json()["priority"] == -10

        async def behind() -> bool:
            return await first_turns(box, ids, keys={}, count=EACH - 1) == {"train": EACH - 1}

        await until(behind)
        everyone = await first_turns(box, ids, keys={}, count=99)
        assert everyone.total() >= 2 * EACH - 1, "the first one's start has begun"
    async with running(state_dir, machine, max_starts=1) as box:
        [shown] = [run for run in (await box.client.get(f"{API}/runs")).json()["runs"] if run["id"] == "eval"]
        assert (shown["priority"], shown["weight"]) == (-10, 1)

        async def as_before() -> bool:
            return await first_turns(box, ids, keys={}, count=EACH - 1) == {"train": EACH - 1}

        await until(as_before)
        taken = await begin(box, "eval", holder="two", take_over=True)
        assert taken.json()["priority"] == 0, "of the new holder"
        machine.hold_ready.set()


async def test_a_priority_takes_no_turn_of_another_tenant(state_dir: Path, machine: Machine) -> None:
    machine.hold_ready = asyncio.Event()
    async with running(state_dir, machine, max_starts=1) as box:
        assert (await begin(box, "first", priority=100)).status_code == 200
        ids = {
            "alpha": await wait_all(box, [{"run_id": "first"}] * EACH),
            "beta": await wait_all(box, [{}] * EACH, "key-b"),
        }
        turns = await first_turns(box, ids, keys={"beta": "key-b"}, count=8)
        assert turns == {"alpha": 4, "beta": 4}
        machine.hold_ready.set()


@pytest.mark.parametrize("priority", [-101, 101, 1.5, "3", None])
async def test_a_priority_that_is_none_is_a_422_that_names_it(box: Running, priority: object) -> None:
    refused = await begin(box, "bad-priority", priority=priority)
    assert (refused.status_code, refused.json()["errors"][0]["param"]) == (422, "priority")


def scheduled(path: Sequence[str]) -> Scheduling:
    return Scheduling(priority=1) if path[-1] == "high" else Scheduling()


async def test_what_a_group_has_collected_goes_to_a_create_of_higher_priority(machine: Machine) -> None:
    machine.hold_ready = asyncio.Event()  # no start is ever ready: only what the test offers is
    supply = Supply(
        backend=StubBackend(machine, tokens=TOKENS, webhook="unix:/nowhere"),
        slots=Slots(rank=first_come(), kind=by_template),
        schedule=scheduled,
    )
    turns = GroupTurns(
        alone=True, chance=lambda: 0.0, patience=0.2, schedule=scheduled, outranked=supply.outranked
    )
    places = GroupPlaces(supply, turns)

    def offer(name: str) -> None:
        supply.report_warm(Instance(InstanceId(name), TEMPLATE, f"unix:/{name}", "token", "p"), 1)

    members = [SandboxId("a"), SandboxId("b")]
    places.expect(GroupId("g"), members, tenant="t", run="low")
    found = [places.ticket(one, Need(TEMPLATE, "t", run="low"), at_once=True) for one in members]
    offer("first")
    high = supply.ticket(Need(TEMPLATE, "t", run="high"))
    assert not high.granted, "the group has it"
    async with asyncio.timeout(SECONDS):
        assert (await high.wait()).hold.instance.id == "first"
    assert not any(ticket is None or ticket.future.done() for ticket in found)
    offer("second")
    offer("third")
    async with asyncio.timeout(SECONDS):
        got = [(await ticket.wait()).hold.instance.id for ticket in found if ticket is not None]
    assert sorted(got) == ["second", "third"]
    places.close()
    await supply.close()
    machine.hold_ready.set()
