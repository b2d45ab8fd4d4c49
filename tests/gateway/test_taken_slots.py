"""Slots that are taken from a create between its grant and its claim's answer, and granted to the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sandlot_gateway.core.backend import NodeFailed, StillPreparing
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.core.slot import Phase
from sandlot_gateway.engine.tickets import Need

from tests.gateway.machine import Machine
from tests.gateway.replica import TEMPLATE, TOKENS, Replica, new_sandbox
from tests.gateway.sidecars import StubSidecar, sidecars
from tests.gateway.test_claim_images import DOCUMENT, Images
from tests.waiting import until


class Answers:
    """Claims that arrive, and are answered once `go_on` is set."""

    def __init__(self) -> None:
        self.arrived, self.go_on = asyncio.Event(), asyncio.Event()

    async def __call__(self, _claim: dict[str, Any]) -> None:
        self.arrived.set()
        await self.go_on.wait()


def used_elsewhere(replica: Replica, sidecar: StubSidecar) -> None:
    """Another gateway's sandbox had it: it reports its next generation."""
    sidecar._reset(keep=False)
    replica.offer(sidecar)


async def test_a_ticket_that_is_given_back_takes_no_slot_from_the_next_create(
    replica: Callable[..., Replica], machine: Machine
) -> None:
    """A create with a key that another gateway has, retried here: the slot had gone on while gateways were asked."""
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        one = replica(sidecar)
        sidecar.before_claim = answers = Answers()
        retried = one.supply.ticket(Need(TEMPLATE, "t"))
        used_elsewhere(one, sidecar)
        sandbox = new_sandbox()
        claiming = asyncio.create_task(one.claim(sandbox))
        await answers.arrived.wait()
        retried.give_back()
        assert one.phase(sidecar) is Phase.CLAIMING
        answers.go_on.set()
        assert (await claiming).instance.id == sidecar.instance_id
        assert one.phase(sidecar) is Phase.OWNED


async def test_a_create_whose_image_is_not_there_takes_no_slot_from_the_next(
    replica: Callable[..., Replica], machine: Machine
) -> None:
    machine.hold_ready = asyncio.Event()
    asked, go_on, given_back = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def never() -> None:
        given_back.set()
        await asyncio.Event().wait()

    async def not_at_first(_instance: Instance) -> dict[str, Any]:
        if asked.is_set():
            return DOCUMENT
        asked.set()
        await go_on.wait()
        raise StillPreparing(never)

    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        one = replica(sidecar, images=Images(not_at_first))
        sidecar.before_claim = answers = Answers()
        waiting = asyncio.create_task(one.claim(new_sandbox()))
        await asked.wait()
        used_elsewhere(one, sidecar)
        claiming = asyncio.create_task(one.claim(new_sandbox()))
        await answers.arrived.wait()
        go_on.set()
        await given_back.wait()
        assert one.phase(sidecar) is Phase.CLAIMING
        answers.go_on.set()
        assert (await claiming).instance.id == sidecar.instance_id
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    machine.hold_ready.set()


async def test_a_create_whose_slot_is_taken_while_its_image_is_prepared_releases_it_and_tries_the_next(
    replica: Callable[..., Replica], machine: Machine
) -> None:
    """Not on a node that has failed before."""
    async with sidecars(4, Path(machine.directory), token=TOKENS.instance) as (bad, taken, beside, good):

        async def prepared(instance: Instance) -> dict[str, Any]:
            if instance.node == "a":
                raise NodeFailed("no agent on node a", node="a")
            if instance.node == "b":
                used_elsewhere(one, taken)
            return DOCUMENT

        images = Images(prepared)
        one = replica(images=images)
        for slot, node in ((bad, "a"), (taken, "b"), (beside, "a"), (good, "c")):
            one.offer(slot, node=node)
        sandbox = new_sandbox(image="another")
        await one.claim(sandbox)
        assert images.asked == [bad.instance_id, taken.instance_id, good.instance_id]
        assert images.unlaid == [(taken.instance_id, DOCUMENT["id"])]
        assert taken.claims_seen == 0


async def test_a_create_whose_slot_is_taken_before_its_claim_comes_before_later_ones(
    replica: Callable[..., Replica], machine: Machine
) -> None:
    machine.hold_ready = asyncio.Event()
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(_instance: Instance) -> dict[str, Any]:
        if not asked.is_set():
            asked.set()
            await go_on.wait()
        return DOCUMENT

    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        one = replica(sidecar, images=Images(slowly), max_waiting=1)
        loser, later = new_sandbox(), new_sandbox()
        claims = [asyncio.create_task(one.claim(loser))]
        await asked.wait()
        used_elsewhere(one, sidecar)
        await one.create()
        claims.append(asyncio.create_task(one.claim(later)))
        await until(lambda: one.claimer.position(later.id) == 1)
        go_on.set()
        await until(lambda: one.claimer.position(loser.id) is not None or claims[0].done())
        positions = one.claimer.position(loser.id), one.claimer.position(later.id)
        for claim in claims:
            claim.cancel()
        await asyncio.gather(*claims, return_exceptions=True)
        machine.hold_ready.set()
        assert positions == (1, 2)


@pytest.mark.parametrize(
    "answer",
    [
        (400, {"error": "bad_request", "message": "no such directory", "field": "workdir"}),
        (409, {"error": "bound", "bound_to": "another"}),
        (410, {"error": "ended", "message": "its node drains"}),
    ],
)
async def test_a_late_rejection_takes_no_slot_from_the_next_create(
    replica: Callable[..., Replica], machine: Machine, answer: tuple[int, dict[str, str]]
) -> None:
    machine.hold_ready = asyncio.Event()
    first, second = Answers(), Answers()

    async def in_turn(claim: dict[str, Any]) -> tuple[int, dict[str, str]] | None:
        if claim["generation"] == 1:
            await first(claim)
            return answer
        await second(claim)
        return None

    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        one = replica(sidecar)
        sidecar.before_claim = in_turn
        rejected = asyncio.create_task(one.claim(new_sandbox()))
        await first.arrived.wait()
        used_elsewhere(one, sidecar)
        claiming = asyncio.create_task(one.claim(new_sandbox()))
        await second.arrived.wait()
        first.go_on.set()
        await until(lambda: one.outcomes)
        assert (one.phase(sidecar), one.discarded) == (Phase.CLAIMING, [])
        second.go_on.set()
        assert (await claiming).instance.id == sidecar.instance_id
        assert one.supply.slots.bound_to(sidecar.instance_id) == "t"
        rejected.cancel()
        await asyncio.gather(rejected, return_exceptions=True)
    machine.hold_ready.set()
