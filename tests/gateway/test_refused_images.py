"""Claims whose image an instance cannot lay, or whose node has it no more: another instance is tried."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sandlot_gateway.core.backend import StillPreparing
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.core.slot import Phase
from sandlot_gateway.core.supply_events import StartFailed

from tests.gateway.machine import Machine
from tests.gateway.replica import TOKENS, new_sandbox
from tests.gateway.sidecars import sidecars
from tests.gateway.test_claim_images import DOCUMENT, QUICK, Images, prepared
from tests.waiting import until


async def test_each_node_may_have_to_prepare_it(replica, machine: Machine) -> None:
    """While all slots are busy, the next free one is often on another node than the last."""
    async with sidecars(4, Path(machine.directory), token=TOKENS.instance) as slots:

        async def at_once() -> None:
            return

        async def on_the_last_node(instance: Instance) -> dict[str, Any]:
            if instance.id == slots[-1].instance_id:
                return DOCUMENT
            raise StillPreparing(at_once)

        images = Images(on_the_last_node)
        one = replica(images=images, patience=QUICK)
        for number, slot in enumerate(slots):
            one.offer(slot, node=f"n{number}")
        sandbox = new_sandbox(image="another")
        await one.claim(sandbox)
        assert images.asked == [slot.instance_id for slot in slots]
        assert sandbox.instance_id == slots[-1].instance_id


REFUSAL = (400, {"error": "bad_request", "message": "no space left on device", "field": "image.lower"})


@pytest.mark.parametrize("nodes", [("a", "b"), ("a", "a"), (None, None)])
async def test_a_slot_that_cannot_lay_it_is_passed_over(
    replica, machine: Machine, nodes: tuple[str | None, str | None]
) -> None:
    async with sidecars(2, Path(machine.directory), token=TOKENS.instance) as (full, good):
        full.before_claim = lambda claim: REFUSAL
        one = replica(images=Images(prepared))
        one.offer(full, node=nodes[0])
        one.offer(good, node=nodes[1])
        sandbox = new_sandbox(image="another")
        await one.claim(sandbox)
        assert sandbox.instance_id == good.instance_id
        assert (full.claims_seen, one.phase(full), one.discarded) == (1, Phase.WARM, [])


async def test_another_node_is_tried_first(replica, machine: Machine) -> None:
    async with sidecars(3, Path(machine.directory), token=TOKENS.instance) as (full, beside, good):
        full.before_claim = beside.before_claim = lambda claim: REFUSAL
        one = replica(images=Images(prepared))
        for slot, node in ((full, "a"), (beside, "a"), (good, "b")):
            one.offer(slot, node=node)
        sandbox = new_sandbox(image="another")
        await one.claim(sandbox)
        assert (sandbox.instance_id, beside.claims_seen) == (good.instance_id, 0)


async def test_an_image_that_no_slot_can_lay_fails_the_create(replica, machine: Machine) -> None:
    async with sidecars(5, Path(machine.directory), token=TOKENS.instance) as slots:
        one = replica(images=Images(prepared))
        for slot in slots:
            slot.before_claim = lambda claim: REFUSAL
            one.offer(slot)
        with pytest.raises(StartFailed, match="no space left") as caught:
            await one.claim(new_sandbox(image="another"))
        assert (caught.value.verdict, caught.value.error_type) == ("image_pull", "IMAGE_PULL_FAILED")
        assert sum(slot.claims_seen for slot in slots) == 3
        assert {one.phase(slot) for slot in slots} == {Phase.WARM}
        assert one.discarded == []


async def test_a_slot_that_refuses_two_images_ends(replica, machine: Machine) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (broken,):
        broken.before_claim = lambda claim: REFUSAL
        document = dict(DOCUMENT)

        async def named(instance: Instance) -> dict[str, Any]:
            return document

        one = replica(broken, images=Images(named))
        for _ in range(2):
            with pytest.raises(StartFailed, match="no space left"):
                await one.claim(new_sandbox(image="another"))
        assert (one.phase(broken), one.discarded) == (Phase.WARM, [])
        document["id"] = "sha256:def"
        claim = asyncio.create_task(one.claim(new_sandbox(image="a third")))
        await until(lambda: one.discarded)
        assert [gone.id for gone in one.discarded] == [broken.instance_id]
        assert one.phase(broken) is Phase.ENDING
        claim.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claim


async def test_a_slot_that_lays_an_image_after_a_refusal_is_no_broken_one(replica, machine: Machine) -> None:
    async with sidecars(2, Path(machine.directory), token=TOKENS.instance) as (slot, other):
        ids = iter(("sha256:1", "sha256:1", "sha256:2"))
        bad = {"sha256:1", "sha256:3"}
        slot.before_claim = lambda claim: REFUSAL if claim["image"]["id"] in bad else None

        async def named(instance: Instance) -> dict[str, Any]:
            return {**DOCUMENT, "id": next(ids)}

        one = replica(slot, other, images=Images(named))
        await one.claim(new_sandbox(image="another"))
        claimed = await one.claim(new_sandbox(image="another"))
        assert claimed.instance.id == slot.instance_id
        assert claimed.instance.refused is None
        assert one.discarded == []
