"""Warm-ups that are done: while one exists, nodes that join get their part of its images."""

from __future__ import annotations

from typing import Any

import pytest
from sandlot_controller.act import warmups

from tests.controller.test_warmup_nodes import Nodes, quick
from tests.waiting import until

__all__ = ["quick"]

DONE = {"phase": "Done", "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2999-01-01T00:00:00Z"}


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmups, "_REST", 0.1)


def join(nodes: Nodes, name: str) -> None:
    nodes.platforms[name] = "linux/amd64"
    nodes.present[name] = {}
    nodes.room[name] = 1 << 50


def leave(nodes: Nodes, name: str) -> None:
    for known in (nodes.room, nodes.platforms, nodes.present):
        del known[name]


async def test_a_node_that_joins_later_gets_its_images() -> None:
    nodes = Nodes("a", "b")
    async with nodes.warming({"popular": 100, "rare": 1}):
        before = await nodes.done()
        assert (before["ready"], before["copies"], before["copiesReady"]) == (2, 4, 4)
        join(nodes, "c")
        await until(lambda: "popular" in nodes.present["c"])
        await until(lambda: nodes.statuses["w"]["copiesReady"] == 5)
        after = nodes.statuses["w"]
        assert (after["phase"], after["ready"], after["failed"], after["copies"]) == ("Done", 2, 0, 5)
        assert after["finishedAt"] == before["finishedAt"]
        assert after["startedAt"] == before["startedAt"]
        assert "rare" not in nodes.present["c"], "two nodes have it"


async def test_its_status_tells_of_the_copies_that_are_being_made() -> None:
    nodes = Nodes("a", "b")
    nodes.holds = lambda node, image: node == "c"
    async with nodes.warming({"popular": 1}):
        await nodes.done()
        join(nodes, "c")
        await until(lambda: nodes.statuses["w"]["copies"] == 3)
        status = nodes.statuses["w"]
        assert (status["phase"], status["ready"], status["copiesReady"]) == ("Done", 1, 2)
        assert status["message"] == "done; preparing 1 more copies, since nodes have joined"
        nodes.released.set()
        await until(lambda: nodes.statuses["w"]["copiesReady"] == 3)
        await until(lambda: nodes.statuses["w"]["message"] is None)


async def test_its_status_tells_nothing_of_another_warm_ups_copies() -> None:
    nodes = Nodes("a", "b", "c")
    nodes.holds = lambda node, image: image.startswith("other")
    async with nodes.warming({f"image-{number}": 1 for number in range(8)}):
        await nodes.done()
        nodes.begin("v", {f"other-{number}": 1 for number in range(8)})
        await until(lambda: nodes.statuses.get("v", {}).get("copies") == 16)
        leave(nodes, "c")
        await until(lambda: nodes.statuses["w"]["copiesReady"] < 16)
        assert "preparing" not in (nodes.statuses["w"]["message"] or "")
        nodes.released.set()


@pytest.mark.parametrize("code", ["not_found", "unauthorized"])
async def test_an_image_that_a_new_node_is_refused_stays_ready_where_it_is(code: str) -> None:
    nodes = Nodes("a", "b")
    async with nodes.warming({"popular": 100, "rare": 1}):
        await nodes.done()
        nodes.refuse = lambda node, image: code
        join(nodes, "c")
        await until(lambda: nodes.statuses["w"]["errors"])
        join(nodes, "d")
        looks = nodes.looks
        await until(lambda: nodes.looks > looks + 3)
        status = nodes.statuses["w"]
        assert (status["ready"], status["failed"], status["copies"], status["copiesReady"]) == (2, 0, 4, 4)
        (error,) = status["errors"]
        assert (error["image"], error["node"], code in error["message"]) == ("popular", "c", True)
        assert [image for image, node in nodes.tried if node in "cd"] == ["popular"]
        # Of an image that no node has any more, the refusal counts.
        for name in "ab":
            del nodes.present[name]["popular"]
        await until(lambda: nodes.statuses["w"]["failed"] == 1)
        assert nodes.statuses["w"]["ready"] == 1


async def test_a_node_that_comes_back_as_another_one_of_its_name_gets_its_images() -> None:
    nodes = Nodes("a", "b", "c")
    async with nodes.warming({"popular": 1}):
        await nodes.done()
        leave(nodes, "c")
        looks = nodes.looks
        await until(lambda: nodes.looks > looks + 2)
        join(nodes, "c")
        await until(lambda: "popular" in nodes.present["c"])
        await until(lambda: nodes.statuses["w"]["copiesReady"] == 3)
        assert nodes.statuses["w"]["errors"] == []


async def test_an_image_whose_node_was_replaced_gets_another_copy() -> None:
    nodes = Nodes("a", "b", "c")
    async with nodes.warming({f"image-{number}": 1 for number in range(8)}):
        await nodes.done()
        looks = nodes.looks  # the plan of the finished warm-up comes first
        await until(lambda: nodes.looks > looks + 1)
        lost = set(nodes.present["c"])
        assert lost
        leave(nodes, "c")
        join(nodes, "d")
        await until(lambda: lost <= set(nodes.present["d"]))


async def test_another_controller_makes_up_for_nodes_that_joined_meanwhile() -> None:
    nodes = Nodes("a", "b", "c")
    nodes.present["a"] = nodes.present["b"] = {"popular": 10}
    async with nodes.warming({"popular": 1}, said=DONE):
        await until(lambda: "popular" in nodes.present["c"])
        await until(lambda: nodes.statuses.get("w", {}).get("copiesReady") == 3)
    assert nodes.statuses["w"]["finishedAt"] == DONE["finishedAt"]


async def test_without_a_new_node_nothing_more_is_prepared() -> None:
    nodes = Nodes("a", "b")
    async with nodes.warming({"image": 1}):
        await nodes.done()
        del nodes.present["a"]["image"]  # its agent needed the room
        looks = nodes.looks
        await until(lambda: nodes.looks > looks + 3)
    assert len(nodes.tried) == 2


async def test_while_no_agent_answers_its_status_stays() -> None:
    nodes = Nodes("a", "b")
    async with nodes.warming({"image": 1}):
        status = await nodes.done()
        away: dict[str, Any] = dict(nodes.room)
        nodes.room.clear()
        looks = nodes.looks
        await until(lambda: nodes.looks > looks + 3)
        assert nodes.statuses["w"] == status
        nodes.room |= away
