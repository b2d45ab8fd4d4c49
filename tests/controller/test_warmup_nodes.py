"""Warm-ups on nodes that differ: other platforms, full disks, images in use, agents that drop what they prepared."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from sandlot_controller.act import warm_nodes, warmups
from sandlot_controller.act.copy_failures import CopyFailures
from sandlot_controller.act.node_agents import AgentError, NodeAgents, NodeImages
from sandlot_controller.act.warm_nodes import WarmNodes
from sandlot_controller.act.warmups import WarmupLoop
from sandlot_controller.plan.warmups import ASSUMED_BYTES, Copy
from sandlot_kube.registry_credentials import RegistryCredentials
from sandlot_kube.warmups import ImageWarmup

from tests.waiting import until


class Nodes:
    """The nodes' agents and the API server, as the loop sees them; a node's address is its name."""

    enabled = True

    def __init__(self, *names: str, room: int = 1 << 50) -> None:
        self.room = dict.fromkeys(names, room)
        self.platforms = dict.fromkeys(names, "linux/amd64")
        self.present: dict[str, dict[str, int]] = {name: {} for name in names}
        self.busy: dict[str, tuple[tuple[frozenset[str], int], ...]] = {}
        self.preparing: dict[str, frozenset[str]] = {}  # by others
        self.refuse: Callable[[str, str], str | None] = lambda node, image: None  # returns a code
        self.holds: Callable[[str, str], bool] = lambda node, image: False
        self.released = asyncio.Event()  # set: nothing is held any more
        self.asked: list[tuple[str, str]] = []
        self.tried: list[tuple[str, str]] = []
        self.statuses: dict[str, dict[str, Any]] = {}
        self.now = time.time
        self.looks = 0
        self.loop: WarmupLoop | None = None  # set: it sees its own writes
        self.images_of: dict[str, dict[str, int]] = {}

    async def node_agents(self) -> dict[str, str]:
        self.looks += 1
        return {name: name for name in self.room}

    async def images(self, address: str) -> NodeImages:
        self._reach(address)
        present = dict(self.present[address])
        return NodeImages(
            self.room[address],
            present,
            self.platforms[address],
            self.busy.get(address, ()),
            self.preparing.get(address, frozenset()),
        )

    async def prepare(self, address: str, image: str, *, tenant: str, auth: Any) -> int:
        self.asked.append((image, address))
        if self.holds(address, image):
            await self.released.wait()
        self.tried.append((image, address))
        await asyncio.sleep(0)
        self._reach(address)
        if (code := self.refuse(address, image)) is not None:
            raise AgentError(code, f"{code} for {image}")
        return self.present[address].setdefault(image, 10)

    def _reach(self, address: str) -> None:
        """Raise AgentError for a node that left after the loop had its address."""
        if address not in self.present:
            raise AgentError("unreachable", f"{address} gives no answer")

    async def patch_warmup_status(self, warmup: ImageWarmup, patch: dict[str, Any]) -> None:
        self.statuses[warmup.metadata.name] = patch["status"]
        if self.loop is not None:
            name = warmup.metadata.name
            uid = warmup.metadata.uid
            self.loop.seen(resource(self.images_of[name], patch["status"], name=name, uid=uid))

    @asynccontextmanager
    async def warming(self, images: dict[str, int], *, said: dict[str, Any] | None = None) -> Any:
        """`said`: its status before."""
        self.images_of["w"] = images
        settings = SimpleNamespace(
            status_interval=0.05,
            retention=60.0,
            backoff=0.01,
            warmup_pulls_per_node=2,
            registry_credentials=None,
        )
        loop = WarmupLoop(
            cast("Any", self),
            agents=cast("NodeAgents", self),
            settings=cast("Any", settings),
            now=time.monotonic,
        )
        self.loop = loop
        loop.seen(resource(images, said or {}))
        task = asyncio.create_task(loop.run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def begin(self, name: str, images: dict[str, int]) -> None:
        """Create another warm-up."""
        assert self.loop is not None
        self.images_of[name] = images
        self.loop.seen(resource(images, {}, name=name))

    async def done(self) -> dict[str, Any]:
        await until(lambda: self.statuses.get("w", {}).get("phase") == "Done")
        return self.statuses["w"]


def resource(
    images: dict[str, int], status: dict[str, Any], *, name: str = "w", uid: str = "u"
) -> ImageWarmup:
    listed = [{"name": name, "weight": weight} for name, weight in images.items()]
    said = {field: value for field, value in status.items() if value is not None}
    metadata = {"name": name, "uid": uid}
    body = {"metadata": metadata, "spec": {"tenant": "alpha", "images": listed}, "status": said}
    return msgspec.convert(body, ImageWarmup)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmups, "_BEAT", 0.01)
    monkeypatch.setattr(warmups, "_LOOK", 0.1)
    monkeypatch.setattr(warm_nodes, "_FULL", 0.3)


async def test_an_image_of_another_platform_goes_to_the_nodes_of_that_one() -> None:
    nodes = Nodes("a1", "a2", "b1", "b2")
    nodes.platforms |= {"b1": "linux/arm64", "b2": "linux/arm64"}
    nodes.refuse = lambda node, image: "wrong_platform" if (image == "arm") != node.startswith("b") else None
    async with nodes.warming({"arm": 1, "amd": 1}):
        status = await nodes.done()
    assert (status["ready"], status["failed"], status["copies"], status["errors"]) == (2, 0, 4, [])
    assert len(nodes.tried) <= 7, "on another platform only those that began at once"


async def test_an_image_of_a_platform_that_no_node_has_fails_at_the_first() -> None:
    nodes = Nodes("a1", "a2", "a3")
    nodes.refuse = lambda node, image: "wrong_platform" if image == "arm" else None
    async with nodes.warming({"arm": 1, "amd": 1}):
        status = await nodes.done()
    assert (status["ready"], status["failed"]) == (1, 1)
    assert [error["message"] for error in status["errors"]] == ["wrong_platform for arm"]
    assert sum(image == "arm" for image, _ in nodes.tried) == 1


async def test_a_node_that_prepares_nothing_leaves_its_images_to_others() -> None:
    nodes = Nodes("a", "b", "broken")
    nodes.refuse = lambda node, image: "unsupported" if node == "broken" else None
    async with nodes.warming({f"image-{number}": 1 for number in range(20)}):
        status = await nodes.done()
    assert (status["ready"], status["failed"], status["copies"]) == (20, 0, 40)
    assert status["message"].startswith("broken: unsupported")
    assert sum(node == "broken" for _, node in nodes.tried) <= 2, "those that began at once"


async def test_a_full_node_gets_another_chance_before_an_image_fails() -> None:
    nodes = Nodes("only")
    failures = iter(["no_space"])
    nodes.refuse = lambda node, image: next(failures, None)
    async with nodes.warming({"image": 1}):
        status = await nodes.done()
    assert (status["ready"], status["failed"]) == (1, 0)


async def test_a_node_that_stays_full_ends_the_warm_up() -> None:
    nodes = Nodes("only")
    nodes.refuse = lambda node, image: "no_space"
    async with nodes.warming({"image": 1}):
        status = await nodes.done()
    assert (status["ready"], status["failed"], len(nodes.tried)) == (0, 1, 3)
    assert "fits on no node" in status["errors"][0]["message"]


async def test_images_whose_sizes_were_guessed_too_large_find_room() -> None:
    nodes = Nodes("a", "b", room=3 * ASSUMED_BYTES)
    async with nodes.warming({f"image-{number}": 1 for number in range(20)}):
        status = await nodes.done()
    assert (status["ready"], status["failed"], status["copiesReady"]) == (20, 0, 40)


async def test_the_room_of_images_in_use_is_not_given_away() -> None:
    nodes = Nodes("only", room=200)
    nodes.present["only"] = {"wanted": 60}
    nodes.busy["only"] = ((frozenset({"others"}), 90),)
    async with nodes.warming({"wanted": 2, "more": 1}):
        status = await nodes.done()
    assert (status["ready"], status["failed"]) == (1, 1)
    assert nodes.tried == [("wanted", "only")], "what is there is asked for, and nothing else"


async def test_an_image_that_is_there_is_ready_once_its_agent_says_that_its_name_still_means_it() -> None:
    nodes = Nodes("a", "b")
    nodes.present = {"a": {"same": 1, "moved": 1}, "b": {"same": 1, "moved": 1}}
    nodes.holds = lambda node, image: image == "moved"
    async with nodes.warming({"same": 1, "moved": 1}):
        await until(lambda: nodes.statuses.get("w", {}).get("ready") == 1)
        assert nodes.statuses["w"]["copiesReady"] == 2
        nodes.released.set()
        status = await nodes.done()
    assert (status["ready"], status["copiesReady"]) == (2, 4)
    assert sorted(nodes.tried) == sorted((image, node) for image in ("same", "moved") for node in "ab")


async def test_an_image_that_is_there_and_not_for_this_tenant_is_not_ready() -> None:
    nodes = Nodes("a", "b")
    nodes.present = {"a": {"private": 1}, "b": {"private": 1}}
    nodes.refuse = lambda node, image: "unauthorized"
    async with nodes.warming({"private": 1}):
        status = await nodes.done()
    assert (status["ready"], status["failed"]) == (0, 1)
    assert "needs credentials" in status["errors"][0]["message"]


async def test_a_copy_that_its_node_has_dropped_is_no_ready_one() -> None:
    nodes = Nodes("only")
    nodes.holds = lambda node, image: image == "held"
    async with nodes.warming({"held": 1, "dropped": 1}):
        await until(lambda: nodes.statuses.get("w", {}).get("ready") == 1)
        del nodes.present["only"]["dropped"]
        await until(lambda: nodes.statuses["w"]["failed"] == 1)
        looks = nodes.looks
        await until(lambda: nodes.looks > looks + 1)
        nodes.released.set()
        status = await nodes.done()
    assert (status["ready"], status["failed"], status["copiesReady"]) == (1, 1, 1)
    (error,) = status["errors"]
    assert (error["image"], error["node"], "released it again" in error["message"]) == (
        "dropped",
        "only",
        True,
    )
    assert nodes.tried.count(("dropped", "only")) == 1


def test_failures_of_images_that_no_warm_up_wants_are_forgotten() -> None:
    failures = CopyFailures(WarmNodes(now=lambda: 0.0), backoff=1.0)
    codes = {"broken": "failed", "missing": "not_found", "secret": "unauthorized"}
    for image, code in codes.items():
        for _ in range(5):
            failures.note(Copy(image, "a"), AgentError(code, "x"), tenant="alpha", now=0.0)
    failures.note(Copy("later", "a"), AgentError("failed", "x"), tenant="alpha", now=0.0)
    failures.keep_only({"broken"})
    assert (list(failures.failed), list(failures.refused("alpha"))) == ([Copy("broken", "a")], [])
    assert not failures.waiting(now=0.5)
    failures.keep_only(set())
    assert not failures.failed


async def test_a_copy_that_fails_unexpectedly_fails_the_image_after_some_tries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(self: RegistryCredentials, tenant: str, image: str) -> None:
        if image == "strange":
            raise RuntimeError("a defect")

    monkeypatch.setattr(RegistryCredentials, "of", fails)
    nodes = Nodes("only")
    async with nodes.warming({"strange": 1, "good": 1}):
        status = await nodes.done()
    assert (status["ready"], status["failed"]) == (1, 1)
    assert [error["image"] for error in status["errors"]] == ["strange"]
    assert "RuntimeError" in status["errors"][0]["message"]
