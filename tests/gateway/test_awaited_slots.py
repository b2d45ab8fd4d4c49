"""Where slots take any image: a slot that its creates gave back until its node has their images."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sandlot_contract.template import Template
from sandlot_gateway.core.slot import Phase
from sandlot_gateway.core.supply_events import Asked, AskId, Grant

from tests.gateway.machine import Machine
from tests.gateway.replica import TOKENS, new_sandbox
from tests.gateway.sidecars import sidecars
from tests.gateway.test_claim_images import Images
from tests.gateway.test_slow_images import Slow
from tests.gateway.test_waiting_images import Creates
from tests.waiting import until


def ask_for_warm(creates: Creates, image: str) -> bool:
    """Have a create ask for a warm slot; return whether it got one."""
    ask = AskId(len(creates.images) + 1)
    creates.images[ask] = image
    effects = creates.core.step(Asked(ask, Template(image), "t"), 1.0)
    return any(isinstance(effect, Grant) for effect in effects)


def test_a_slot_is_not_tried_by_create_after_create() -> None:
    """Each would hold it for a second, and its node would pull every image."""
    creates = Creates()
    for number in range(50):
        creates.ask(f"image-{number}")
    tried = [creates.free("n1")]
    while (last := tried[-1]) is not None:
        tried.append(creates.give_back(1, last))
    assert tried == ["image-0", "image-1", "image-2", "image-3", None]


def test_creates_of_an_image_that_a_node_prepares_are_not_offered_the_slot() -> None:
    creates = Creates()
    for _ in range(5):
        creates.ask("a")
    assert creates.free("n1") == "a"
    assert creates.give_back(1, "a") is None


def test_a_create_of_another_image_may_try_the_slot_before_them() -> None:
    creates = Creates()
    for image in "aab":
        creates.ask(image)
    assert creates.free("n1") == "a"
    assert creates.give_back(1, "a") == "b"
    assert creates.give_back(1, "b") is None


def test_an_awaited_slot_serves_a_create_whose_image_its_node_has() -> None:
    creates = Creates()
    for image in "aab":
        creates.ask(image)
    creates.world.nodes["b"].add("n1")
    assert creates.free("n1") == "b"
    assert creates.free("n1") == "a"
    creates.world.nodes["a"].add("n1")
    assert creates.give_back(2, "a") == "a"


def test_once_a_create_has_come_back_others_get_the_slot() -> None:
    """It has failed, was deleted, or has got another slot."""
    creates = Creates()
    for image in "aa":
        creates.ask(image)
    assert creates.free("n1") == "a"
    assert creates.give_back(1, "a") is None
    assert creates.come_back(1, "a") == "a"


def test_a_slot_that_has_an_owner_is_not_offered_when_a_create_comes_back() -> None:
    creates = Creates()
    for image in "abc":
        creates.ask(image)
    assert creates.free("n1") == "a"
    assert creates.give_back(1, "a") == "b"
    assert creates.come_back(1, "a") is None


def test_a_slot_is_offered_once_its_node_has_the_image_of_a_waiting_create() -> None:
    """A pull for another slot's create, or a warm-up, has brought it."""
    creates = Creates()
    for name in "abcdx":
        creates.ask(name)
    assert creates.free("n1") == "a"
    assert [creates.give_back(1, name) for name in "abcd"] == ["b", "c", "d", None]
    assert creates.look(now=2.0) is None
    creates.world.nodes["x"].add("n1")
    assert creates.look(now=3.0) == "x"
    assert creates.look(now=4.0) is None


def test_a_create_that_comes_back_has_the_slots_of_its_node_looked_at_soon() -> None:
    """Another slot may serve a sibling of it, whose image is there now."""
    creates = Creates()
    for name in "xabcd":
        creates.ask(name)
    assert creates.free("n1") == "x"
    assert [creates.give_back(1, name) for name in "xabc"] == ["a", "b", "c", None]
    creates.ask("x")
    assert creates.free("n1") == "d"
    assert creates.give_back(2, "d") == "x"
    assert creates.give_back(2, "x") is None
    for _ in range(2):
        creates.ask("x")
    assert creates.look(now=1.0) is None
    creates.world.nodes["x"].add("n1")
    assert creates.come_back(1, "x") == "x"
    assert creates.core.look_at() == 1.0
    assert creates.look(now=1.0) == "x"


@pytest.mark.parametrize("image", ["there", "new"])
def test_siblings_of_an_awaited_image_hide_no_create_that_may_try_the_slot(image: str) -> None:
    creates = Creates()
    for _ in range(200):
        creates.ask("a")
    creates.ask(image)
    assert creates.free("n1") == "a"
    creates.world.nodes["there"].add("n1")
    assert creates.give_back(1, "a") == image


@pytest.mark.parametrize(("image", "got"), [("a", False), ("b", True), ("c", True)])
def test_a_new_create_gets_an_awaited_slot_unless_it_is_of_the_same_image(image: str, got: bool) -> None:
    creates = Creates()
    creates.world.nodes["c"].add("n1")
    creates.ask("a")
    assert creates.free("n1") == "a"
    assert creates.give_back(1, "a") is None
    assert ask_for_warm(creates, image) is got


@pytest.mark.parametrize(("image", "got"), [("new", False), ("there", True)])
def test_a_new_create_gets_a_slot_of_many_waits_only_if_its_image_is_there(image: str, got: bool) -> None:
    creates = Creates()
    creates.world.nodes["there"].add("n1")
    for name in "abcd":
        creates.ask(name)
    creates.free("n1")
    assert [creates.give_back(1, name) for name in "abcd"] == ["b", "c", "d", None]
    assert ask_for_warm(creates, image) is got


def test_a_create_that_comes_back_takes_the_slot_before_others() -> None:
    creates = Creates()
    for image in "ab":
        creates.ask(image)
    creates.free("n1")
    assert creates.give_back(1, "a") == "b"
    assert creates.give_back(1, "b") is None
    creates.world.nodes["a"].add("n1")
    assert ask_for_warm(creates, "a")
    assert creates.come_back(1, "a") is None


async def test_a_slot_is_tried_by_few_creates_while_its_node_lacks_their_images(
    replica, machine: Machine
) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        slow = Slow()
        images = Images(slow.answer)
        one = replica(images=images)
        one.offer(sidecar, node="a")
        sandboxes = [new_sandbox(image=f"image-{number}") for number in range(20)]
        claims = [asyncio.create_task(one.claim(sandbox)) for sandbox in sandboxes]
        await until(lambda: slow.waiting == 4)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(images.asked) == 4
        assert one.phase(sidecar) is Phase.WARM
        one.claimer.cancel(sandboxes[0].id)
        await until(lambda: slow.waiting == 5)  # its place is the next one's
        slow.done.set()
        await until(lambda: one.phase(sidecar) is Phase.OWNED)
        for claim in claims:
            claim.cancel()
        await asyncio.gather(*claims, return_exceptions=True)
