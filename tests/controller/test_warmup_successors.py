"""A warm-up that has the name of a deleted one, whose last events come late: they do not touch it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sandlot_controller.act.warmups import WarmupLoop
from sandlot_kube.warmups import ImageWarmup

from tests.controller.test_warmup_nodes import Nodes, quick, resource
from tests.waiting import until

__all__ = ["quick"]

OLD, NEW = {"old": 1}, {"new": 1, "newer": 1}


def changed(loop: WarmupLoop, old: ImageWarmup) -> None:
    loop.seen(old)


def deleted(loop: WarmupLoop, old: ImageWarmup) -> None:
    loop.gone(old)


@pytest.mark.parametrize("late", [[], [deleted], [changed, deleted], [changed]])
async def test_it_is_carried_out(late: list[Callable[[WarmupLoop, ImageWarmup], None]]) -> None:
    nodes = Nodes("a", "b")
    nodes.holds = lambda node, image: image == "old"
    async with nodes.warming(OLD):
        assert nodes.loop is not None
        await until(lambda: nodes.asked)
        nodes.images_of["w"] = NEW
        nodes.loop.seen(resource(NEW, {}, uid="successor"))
        for event in late:
            event(nodes.loop, resource(OLD, {"ready": 1}))
        nodes.released.set()
        status = await nodes.done()
    assert (status["ready"], status["copies"]) == (2, 4)


async def test_it_is_not_done_because_the_one_before_was() -> None:
    nodes = Nodes("a")
    nodes.holds = lambda node, image: image != "old"
    async with nodes.warming(OLD):
        assert nodes.loop is not None
        done = await nodes.done()
        nodes.images_of["w"] = NEW
        nodes.loop.seen(resource(NEW, {}, uid="successor"))
        nodes.loop.seen(resource(OLD, done))
        await until(lambda: nodes.statuses["w"]["phase"] == "Running")
        nodes.loop.gone(resource(OLD, done))
        nodes.released.set()
        await until(lambda: nodes.statuses["w"]["phase"] == "Done")
    assert nodes.statuses["w"]["ready"] == 2


async def test_its_own_deletion_stops_it() -> None:
    nodes = Nodes("a")
    nodes.holds = lambda node, image: image == "new"
    async with nodes.warming(OLD):
        assert nodes.loop is not None
        nodes.loop.seen(resource({"new": 1}, {}, uid="successor"))
        await until(lambda: ("new", "a") in nodes.asked)
        nodes.loop.gone(resource({"new": 1}, {}, uid="successor"))
        nodes.begin("v", {"other": 1})
        await until(lambda: nodes.statuses.get("v", {}).get("phase") == "Done")
    assert nodes.statuses.get("w", {}).get("phase") != "Done"
