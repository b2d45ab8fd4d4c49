"""A preparation that takes longer than an instance is held for it: creates wait for it, and show how far it is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sandlot_gateway.core.backend import BackendError, NodeFailed, StillPreparing
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.core.slot import Phase
from sandlot_gateway.core.supply_events import StartFailed
from sandlot_gateway.engine.images import Patience

from tests.gateway.machine import Machine
from tests.gateway.replica import TOKENS, new_sandbox
from tests.gateway.sidecars import sidecars
from tests.gateway.test_claim_images import DOCUMENT, Images
from tests.waiting import until


class Slow:
    """A preparation that ends when it is told to; later claims find the image."""

    def __init__(self) -> None:
        self.done = asyncio.Event()
        self.fails: BackendError | None = None
        self.waiting = 0

    async def answer(self, instance: Instance) -> dict[str, Any]:
        if self.done.is_set():
            return DOCUMENT
        raise StillPreparing(self.finished)

    async def finished(self) -> None:
        self.waiting += 1
        await self.done.wait()
        if self.fails is not None:
            raise self.fails


async def test_a_slow_preparation_holds_no_instance_and_all_its_creates_show_it(
    replica, machine: Machine
) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        slow = Slow()
        images = Images(slow.answer)
        one = replica(images=images)
        first, second = new_sandbox(image="another"), new_sandbox(image="another")
        claims = [asyncio.create_task(one.claim(sandbox)) for sandbox in (first, second)]
        await until(lambda: one.claimer.position(second.id) == 2)
        assert [one.claimer.progress(sandbox.id) for sandbox in (first, second)] == [None, None]
        one.offer(sidecar, node="n1")
        await until(lambda: slow.waiting == 1)
        assert one.phase(sidecar) is Phase.WARM
        for text in ("pulling, 1 of 10 MB", "pulling, 9 of 10 MB"):
            images.progress = text
            assert [one.claimer.progress(sandbox.id) for sandbox in (first, second)] == [text, text]
        assert one.claimer.position(second.id) == 1
        images.progress, images.nodes = None, ("n1",)
        slow.done.set()
        await claims[0]
        assert first.instance_id == sidecar.instance_id
        assert [one.claimer.progress(sandbox.id) for sandbox in (first, second)] == [None, None]
        assert one.claimer.position(second.id) == 1
        one.claimer.cancel(second.id)
        with pytest.raises(asyncio.CancelledError):
            await claims[1]


async def test_a_create_whose_image_is_prepared_shows_no_other_nodes_preparation(
    replica, machine: Machine
) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        slow = Slow()
        images = Images(slow.answer)
        one = replica(images=images)
        first, second = new_sandbox(image="another"), new_sandbox(image="another")
        claims = [asyncio.create_task(one.claim(sandbox)) for sandbox in (first, second)]
        one.offer(sidecar, node="n2")
        await until(lambda: slow.waiting == 1)
        images.progress, images.nodes = "pulling", ("n1",)
        assert one.claimer.progress(first.id) == "pulling", "it waits for node n2"
        assert (one.claimer.progress(second.id), one.claimer.position(second.id)) == (None, 1)
        for sandbox, claim in zip((first, second), claims, strict=True):
            one.claimer.cancel(sandbox.id)
            with pytest.raises(asyncio.CancelledError):
                await claim


async def test_a_create_shows_the_failure_after_which_it_pauses(replica, machine: Machine) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):

        async def never(instance: Instance) -> dict[str, Any]:
            raise NodeFailed("no agent on node a", node="a")

        images = Images(never)
        images.progress = "pulling"
        one = replica(images=images, patience=Patience(first_pause=3600.0, longest_pause=3600.0))
        one.offer(sidecar, node="a")
        sandbox = new_sandbox(image="another")
        claim = asyncio.create_task(one.claim(sandbox))
        await until(lambda: one.claimer.progress(sandbox.id) == "no agent on node a")
        assert len(images.asked) == 2
        one.claimer.cancel(sandbox.id)
        with pytest.raises(asyncio.CancelledError):
            await claim
        assert one.claimer.progress(sandbox.id) is None


async def test_a_slow_preparation_that_fails_ends_the_create(replica, machine: Machine) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        slow = Slow()
        slow.fails = BackendError("no such tag", error_type="IMAGE_PULL_FAILED")
        one = replica(sidecar, images=Images(slow.answer))
        slow_claim = asyncio.create_task(one.claim(new_sandbox()))
        await until(lambda: slow.waiting)
        slow.done.set()
        with pytest.raises(StartFailed, match="no such tag") as caught:
            await slow_claim
        assert caught.value.verdict == "image_pull"
        assert one.phase(sidecar) is Phase.WARM


async def test_a_create_that_leaves_a_slow_preparation_needs_nothing(replica, machine: Machine) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        slow = Slow()
        one = replica(sidecar, images=Images(slow.answer))
        sandbox = new_sandbox()
        claim = asyncio.create_task(one.claim(sandbox))
        await until(lambda: slow.waiting)
        one.claimer.cancel(sandbox.id)
        with pytest.raises(asyncio.CancelledError):
            await claim
        assert (one.phase(sidecar), sidecar.claims_seen) == (Phase.WARM, 0)
