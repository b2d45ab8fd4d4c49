"""Each image that was prepared for a claim is laid or released, however the claim ends."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sandlot_gateway.core.backend import NodeFailed
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.core.slot import Loss
from sandlot_gateway.core.supply_events import StartFailed
from sandlot_gateway.engine.claim_failures import Abandoned, ClaimRefused, LostAtOnce, NoSidecar
from sandlot_gateway.engine.images import Patience

from tests.gateway.machine import Machine
from tests.gateway.replica import TOKENS, new_sandbox
from tests.gateway.sidecars import sidecars
from tests.gateway.test_claim_images import DOCUMENT, Images, prepared
from tests.waiting import until

ANSWERS: dict[str, tuple[int, dict[str, Any]]] = {
    "refused": (400, {"error": "bad_request", "message": "no", "field": "env"}),
    "gone": (410, {"error": "ended", "message": "no"}),
    "bound": (409, {"error": "bound", "bound_to": "another"}),
    "taken": (409, {"error": "taken", "message": "no"}),
    "stale": (409, {"error": "stale_generation", "message": "no"}),
}


@pytest.mark.parametrize("answer", ANSWERS)
async def test_a_claim_that_is_not_accepted_releases_its_image(
    replica, machine: Machine, answer: str
) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        images = Images(prepared)
        sidecar.before_claim = lambda claim: ANSWERS[answer]
        one = replica(sidecar, images=images, max_failures=1)
        claim = asyncio.create_task(one.claim(new_sandbox()))
        await until(lambda: images.unlaid or claim.done())
        claim.cancel()
        await asyncio.wait([claim])
        if not claim.cancelled():
            assert isinstance(claim.exception(), (ClaimRefused, NoSidecar))
        assert images.unlaid == [(sidecar.instance_id, DOCUMENT["id"])]


async def test_a_create_that_was_deleted_releases_its_image(replica, machine: Machine) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        sandbox = new_sandbox()

        async def deleted(instance: Instance) -> dict[str, Any]:
            sandbox.status = "TERMINATED"
            return DOCUMENT

        images = Images(deleted)
        one = replica(sidecar, images=images)
        with pytest.raises(Abandoned):
            await one.claim(sandbox)
        assert images.unlaid == [(sidecar.instance_id, DOCUMENT["id"])]


async def test_a_create_that_is_cancelled_during_its_claim_releases_its_image(
    replica, machine: Machine
) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        images = Images(prepared)
        one = replica(sidecar, images=images)
        sandbox = new_sandbox()
        task: list[asyncio.Task[Any]] = []

        def leave(claim: Any) -> None:
            task[0].cancel()

        sidecar.before_claim = leave
        task.append(asyncio.create_task(one.claim(sandbox)))
        await asyncio.wait(task)
        assert task[0].cancelled()
        assert images.unlaid == [(sidecar.instance_id, DOCUMENT["id"])]


async def test_an_accepted_claim_whose_instance_is_lost_before_the_answer_releases_its_image(
    replica, machine: Machine
) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        images = Images(prepared)
        one = replica(sidecar, images=images)

        def lose(claim: Any) -> None:
            one.supply.lost(sidecar.instance_id, Loss("oom", "killed"))

        sidecar.before_claim = lose
        with pytest.raises(LostAtOnce) as caught:
            await one.claim(new_sandbox())
        assert caught.value.loss == Loss("oom", "killed")
        assert (images.laid, images.unlaid) == ([], [(sidecar.instance_id, DOCUMENT["id"])])


async def test_an_accepted_claim_releases_nothing(replica, machine: Machine) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        images = Images(prepared)
        one = replica(sidecar, images=images)
        await one.claim(new_sandbox())
        assert (len(images.laid), images.unlaid) == (1, [])


def away(instance: Instance, *, lasts: float) -> NodeFailed:
    return NodeFailed("no agent on node a", node=instance.node or "", lasts=lasts)


async def test_an_agent_that_comes_back_in_time_fails_no_create(replica, machine: Machine) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        left = list(range(10))

        async def later(instance: Instance) -> dict[str, Any]:
            if left:
                left.pop()
                raise away(instance, lasts=60.0)
            return DOCUMENT

        images = Images(later)
        one = replica(images=images, patience=Patience(failures=2, first_pause=0.0, longest_pause=0.0))
        one.offer(sidecar, node="a")
        sandbox = new_sandbox(image="another")
        await one.claim(sandbox)
        assert sandbox.instance_id == sidecar.instance_id


async def test_an_agent_that_stays_away_fails_the_create(replica, machine: Machine) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):

        async def never(instance: Instance) -> dict[str, Any]:
            raise away(instance, lasts=0.2)

        one = replica(images=Images(never), patience=Patience(first_pause=0.05, longest_pause=0.05))
        one.offer(sidecar, node="a")
        with pytest.raises(StartFailed, match="no agent on node a") as caught:
            await one.claim(new_sandbox(image="another"))
        assert caught.value.verdict == "start_failed"
