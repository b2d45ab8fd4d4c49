"""What agents prepare already, for a leader that is gone or for creates: it counts before a warm-up begins anything."""

from __future__ import annotations

import time

from sandlot_kube import clock

from tests.controller.test_warmup_nodes import Nodes, quick
from tests.waiting import until

__all__ = ["quick"]


def held(*nodes: str) -> Nodes:
    """Nodes on which every preparation is held."""
    made = Nodes(*nodes)
    made.holds = lambda node, image: True
    return made


async def test_a_warm_up_that_is_seen_later_joins_its_own() -> None:
    nodes = held("a")
    nodes.preparing = {"a": frozenset({"late-1", "late-2"})}
    async with nodes.warming({"early": 1}):
        await until(lambda: nodes.statuses)  # it has looked, and begun
        nodes.begin("v", {f"late-{number}": 1 for number in range(4)})
        await until(lambda: "v" in nodes.statuses)
        assert set(nodes.asked) == {("early", "a"), ("late-1", "a"), ("late-2", "a")}
        nodes.released.set()
        await nodes.done()


async def test_what_no_warm_up_wants_is_not_joined_and_takes_no_place() -> None:
    nodes = held("a")
    nodes.preparing = {"a": frozenset({f"strange-{number}" for number in range(5)})}
    async with nodes.warming({"mine": 1}):
        await until(lambda: nodes.asked == [("mine", "a")])
        nodes.released.set()
        assert (await nodes.done())["ready"] == 1
    assert nodes.asked == [("mine", "a")]


async def test_a_copy_that_failed_is_not_begun_again_because_another_prepares_it() -> None:
    nodes = Nodes("a")
    nodes.preparing = {"a": frozenset({"bad"})}
    nodes.refuse = lambda node, image: "failed" if image == "bad" else None
    async with nodes.warming({"bad": 1, "good": 1}):
        status = await nodes.done()
        tries = len(nodes.asked)
        looks = nodes.looks
        nodes.begin("v", {"more": 1})  # it looks again
        await until(lambda: nodes.looks > looks and ("more", "a") in nodes.asked)
        assert (status["ready"], status["failed"]) == (1, 1)
        assert nodes.asked[tries:] == [("more", "a")]


async def test_what_a_create_has_prepared_is_told_as_no_copy_of_a_warm_up_that_is_done() -> None:
    nodes = held("a", "b", "c")
    nodes.present = {"a": {"image": 10, "other": 10}, "b": {"image": 10, "other": 10}, "c": {"other": 10}}
    nodes.preparing = {"c": frozenset({"image"})}
    done = {"phase": "Done", "finishedAt": clock.text(time.time())}
    async with nodes.warming({"image": 1, "other": 99}, said=done):
        await until(lambda: ("image", "c") in nodes.asked and "w" in nodes.statuses)
        assert (nodes.statuses["w"]["copiesReady"], nodes.statuses["w"]["message"]) == (5, None)
