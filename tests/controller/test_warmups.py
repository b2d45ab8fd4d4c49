"""Image warm-ups on a real API server: carried out by the nodes' agents, reported, resumed, and removed in the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from sandlot_controller.act.node_agents import NodeAgents
from sandlot_controller.controller import Controller
from sandlot_kube import paths
from sandlot_kube.errors import KubeError
from sandlot_node.failures import ImageError, Kind

from tests.controller.agents import Agents
from tests.controller.cluster import Cluster
from tests.node.agents import PlayedEngine
from tests.waiting import until

pytestmark = pytest.mark.programs


class Warm:
    """A cluster with an agent on each of three nodes."""

    def __init__(self, cluster: Cluster, agents: Agents) -> None:
        self.cluster = cluster
        self.agents = agents
        cluster.agents = NodeAgents(agents.token_file, port=agents.port)

    @property
    def engines(self) -> dict[str, PlayedEngine]:
        return self.agents.engines

    async def begin(self, images: dict[str, int], *, name: str = "w", tenant: str = "alpha") -> None:
        listed = [{"name": image, "weight": weight} for image, weight in images.items()]
        body = {
            "apiVersion": "sandlot.dev/v1alpha1",
            "kind": "ImageWarmup",
            "metadata": {"name": name},
            "spec": {"tenant": tenant, "images": listed},
        }
        await self.cluster.client.request("POST", paths.warmups(self.cluster.namespace), body=body)

    async def status(self, name: str = "w") -> dict[str, Any]:
        body = await self.cluster.client.request("GET", paths.warmups(self.cluster.namespace, name))
        return json.loads(body).get("status", {})

    async def done(self, name: str = "w") -> dict[str, Any]:
        async def is_done() -> bool:
            return (await self.status(name)).get("phase") == "Done"

        await until(is_done, seconds=60)
        return await self.status(name)

    async def running(self, name: str = "w") -> dict[str, Any]:
        """Wait for its first status."""

        async def has_begun() -> bool:
            return (await self.status(name)).get("phase") == "Running"

        await until(has_begun)
        return await self.status(name)

    def controlled(self, **values: Any) -> AbstractAsyncContextManager[Controller]:
        return self.cluster.controlled(**values)

    def pulls(self, image: str) -> int:
        return sum(name == image for engine in self.engines.values() for name, _ in engine.pulls)


@pytest.fixture
async def warm(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Warm]:
    agents = Agents(cluster, tmp_path)
    async with AsyncExitStack() as stack:
        for node in [*cluster.nodes, await cluster.node(), await cluster.node()]:
            await stack.enter_async_context(agents.on(node))
        yield Warm(cluster, agents)


async def test_frequent_images_get_to_every_node_and_rare_ones_to_two(warm: Warm) -> None:
    images = {"popular": 100, **{f"rare-{number}": 1 for number in range(10)}}
    async with warm.controlled():
        await warm.begin(images)
        status = await warm.done()
    assert (status["ready"], status.get("failed", 0), status["copies"], status["copiesReady"]) == (
        11,
        0,
        23,
        23,
    )
    assert status["bytes"] == 230
    assert status["finishedAt"] >= status["startedAt"]
    assert "errors" not in status or status["errors"] == []
    assert warm.pulls("popular") == 3
    assert all(warm.pulls(image) == 2 for image in images if image != "popular")


async def test_an_image_is_on_one_node_before_the_others_ask_for_it(warm: Warm) -> None:
    for engine in warm.engines.values():
        engine.gate.clear()
    async with warm.controlled():
        await warm.begin({"only": 1})
        await until(lambda: warm.pulls("only") == 1)
        status = await warm.running()
        assert (status["phase"], status["copies"], status.get("secondsLeft")) == ("Running", 3, None)
        (first,) = [engine for engine in warm.engines.values() if engine.pulls]
        await asyncio.sleep(0.5)
        assert warm.pulls("only") == 1
        first.gate.set()
        await until(lambda: warm.pulls("only") == 3)
        for engine in warm.engines.values():
            engine.gate.set()
        assert (await warm.done())["ready"] == 1


async def test_no_node_prepares_more_at_once_than_its_cap(warm: Warm) -> None:
    for engine in warm.engines.values():
        engine.gate.clear()
    async with warm.controlled(warmup_pulls_per_node=2):
        await warm.begin({f"image-{number}": 1 for number in range(12)})
        await until(lambda: all(len(engine.pulls) == 2 for engine in warm.engines.values()))
        await asyncio.sleep(0.5)
        assert [len(engine.pulls) for engine in warm.engines.values()] == [2, 2, 2]
        for engine in warm.engines.values():
            engine.gate.set()
        assert (await warm.done())["ready"] == 12


async def test_an_image_that_cannot_be_prepared_has_an_error(warm: Warm) -> None:
    for engine in warm.engines.values():
        engine.refuse[("missing", None)] = ImageError(Kind.NOT_FOUND, "the registry has no such image")
    node, flaky = next(iter(warm.engines.items()))
    flaky.refuse[("flaky", None)] = ImageError(Kind.UNAVAILABLE, "containerd does not answer")
    async with warm.controlled(backoff=0.02):
        await warm.begin({"missing": 1, "flaky": 1, "there": 1})
        status = await warm.done()
    assert (status["ready"], status["failed"], status["copies"], status["copiesReady"]) == (2, 1, 6, 5)
    errors = {error["image"]: error for error in status["errors"]}
    assert errors["missing"]["message"] == "the registry has no such image"
    assert (errors["flaky"]["node"], errors["flaky"]["message"]) == (node, "containerd does not answer")
    assert warm.pulls("missing") == 1


async def test_a_failure_that_passes_is_forgotten(warm: Warm) -> None:
    for engine in warm.engines.values():
        engine.refuse[("late", None)] = ImageError(Kind.UNAVAILABLE, "not now")
    async with warm.controlled(backoff=1.0):
        await warm.begin({"late": 1})
        await until(lambda: warm.pulls("late") >= 1)
        for engine in warm.engines.values():
            engine.refuse.clear()
        status = await warm.done()
    assert (status["ready"], status.get("errors", [])) == (1, [])


async def test_another_controller_goes_on(warm: Warm) -> None:
    for engine in warm.engines.values():
        engine.gate.clear()
    async with warm.controlled():
        await warm.begin({f"image-{number}": 1 for number in range(4)})
        await until(lambda: sum(len(engine.pulls) for engine in warm.engines.values()) >= 4)
        began = (await warm.running())["startedAt"]
    for engine in warm.engines.values():
        engine.gate.set()
    async with warm.controlled():
        status = await warm.done()
    assert (status["ready"], status["startedAt"]) == (4, began)
    assert all(warm.pulls(f"image-{number}") == 3 for number in range(4))


async def test_another_controller_knows_what_is_being_prepared(warm: Warm) -> None:
    """Otherwise a warm-up that goes first would get that node, too, and the image a second first node."""
    for engine in warm.engines.values():
        engine.gate.clear()
    async with warm.controlled(warmup_pulls_per_node=1):
        await warm.begin({"late": 1})
        await until(lambda: warm.pulls("late") == 1)
        (busy,) = [engine for engine in warm.engines.values() if engine.pulls]
    await warm.begin({"early": 1}, name="v")
    async with warm.controlled(warmup_pulls_per_node=1):
        await until(lambda: warm.pulls("early") == 1)
        await warm.running("v")
        assert [name for name, _ in busy.pulls] == ["late"]
        assert warm.pulls("late") == 1
        for engine in warm.engines.values():
            engine.gate.set()
        assert [(await warm.done(name))["ready"] for name in ("w", "v")] == [1, 1]
    assert (warm.pulls("late"), warm.pulls("early")) == (3, 3)


async def test_without_node_agents_it_fails_at_once(warm: Warm) -> None:
    warm.cluster.agents = None
    async with warm.controlled():
        await warm.begin({"image": 1})
        status = await warm.done()
    assert (status["failed"], "slots.enabled" in status["message"]) == (1, True)


async def test_it_waits_for_an_agent(cluster: Cluster, tmp_path: Path) -> None:
    agents = Agents(cluster, tmp_path)
    warm = Warm(cluster, agents)
    async with warm.controlled():
        await warm.begin({"image": 1})

        async def waits() -> bool:
            return "no" in ((await warm.status()).get("message") or "")

        await until(waits)
        assert (await warm.status())["phase"] == "Running"
        async with agents.on(cluster.nodes[0]):
            status = await warm.done()
    assert (status["ready"], status["copies"], status.get("message")) == (1, 1, None)


async def test_a_finished_one_is_removed_after_the_retention(warm: Warm) -> None:
    async with warm.controlled(retention=0.0):
        await warm.begin({"image": 1})

        async def is_gone() -> bool:
            try:
                await warm.status()
            except KubeError as error:
                return error.status == 404
            return False

        await until(is_gone, seconds=60)
    assert warm.pulls("image") == 3


async def test_a_warm_up_does_not_change(warm: Warm) -> None:
    await warm.begin({"image": 1})
    with pytest.raises(KubeError, match="a warm-up does not change"):
        await warm.cluster.client.request(
            "PATCH",
            paths.warmups(warm.cluster.namespace, "w"),
            body={"spec": {"tenant": "beta"}},
            content_type="application/merge-patch+json",
        )
