"""A create whose instance dies, is taken or does not answer gets another instance."""

from __future__ import annotations

import asyncio

from tests.gateway.conftest import Running
from tests.gateway.warm_pool import warmed
from tests.waiting import until


async def test_an_instance_that_dies_while_starting_is_tried_once_more(box: Running) -> None:
    box.machine.hold_ready = asyncio.Event()
    creating = asyncio.create_task(box.create())
    await until(lambda: box.machine.sidecars)
    first = next(iter(box.machine.sidecars))
    box.backend.lose(first, verdict="start_failed")
    await until(lambda: box.machine.launched == 2)
    box.machine.hold_ready.set()
    assert (await creating)["status"] == "RUNNING"


async def test_a_claim_that_is_taken_goes_to_the_next(box: Running) -> None:
    await warmed(box)
    first, second, _ = box.gateway.supply.slots.warm
    box.machine.sidecars[first.id].before_claim = lambda claim: (409, {"error": "already_claimed"})
    made = await box.create()
    assert box.machine.of_sandbox(made["id"]).instance_id == second.id
    assert first.id in box.machine.sidecars, "another owner's instance was destroyed"


async def test_an_unreachable_instance_is_discarded(box: Running) -> None:
    await warmed(box)
    first = next(iter(box.gateway.supply.slots.warm))
    await box.machine.sidecars[first.id].close()
    made = await box.create()
    assert made["status"] == "RUNNING"
    await until(lambda: first.id in box.backend.destroyed)


async def test_a_lost_answer_is_asked_for_again(box: Running) -> None:
    await warmed(box)
    first = next(iter(box.gateway.supply.slots.warm))
    sidecar = box.machine.sidecars[first.id]
    sidecar.lose_answers = 1
    made = await box.create()
    assert sidecar.owners == [made["id"]]
    assert sidecar.claims_seen == 2


async def test_an_answer_lost_for_good_discards_the_instance(box: Running) -> None:
    await warmed(box)
    first = next(iter(box.gateway.supply.slots.warm))
    box.machine.sidecars[first.id].lose_answers = 2
    made = await box.create()
    assert made["status"] == "RUNNING"
    await until(lambda: first.id in box.backend.destroyed)
    assert box.machine.of_sandbox(made["id"]).instance_id != first.id
