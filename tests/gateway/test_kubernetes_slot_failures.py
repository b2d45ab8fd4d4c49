"""Images that slot pods cannot get: verdicts with the agent's text, other nodes, and no image without a right to it."""

from __future__ import annotations

import json
import logging

import pytest
from sandlot_node.failures import ImageError, Kind

from tests.gateway.image_node import IMAGES, ImageNode, image_nodes, laying_gateway, which
from tests.gateway.kubernetes_world import NEEDS_API_SERVER, World
from tests.node.registries import PASSWORD, PRIVATE, USER
from tests.waiting import until

pytestmark = NEEDS_API_SERVER

SECRET = f"{PRIVATE}/secret:1"


@pytest.mark.parametrize(
    ("kind", "text"),
    [(Kind.NOT_FOUND, "no such tag: push it"), (Kind.UNAUTHORIZED, "no right: send credentials")],
)
async def test_an_image_that_cannot_be_had_ends_the_create(
    world: World, nodes: list[ImageNode], kind: Kind, text: str
) -> None:
    nodes[0].engine.refuse[IMAGES[0], None] = ImageError(kind, text)
    async with laying_gateway(world) as gateway:
        await nodes[0].pod()
        await gateway.warm()
        answer = await gateway.settled(await gateway.create(docker_image=IMAGES[0]))
        assert (answer["status"], answer["errorType"]) == ("ERROR", "IMAGE_PULL_FAILED")
        assert answer["errorMessage"] == text
        await gateway.warm()


async def test_a_full_disk_or_a_lost_agent_is_left_to_another_node(
    world: World, nodes: list[ImageNode]
) -> None:
    full, gone = nodes
    full.engine.refuse[IMAGES[0], None] = ImageError(Kind.NO_SPACE, "the disk is full: enlarge it")
    async with image_nodes(world, ("n3",)) as [good], laying_gateway(world) as gateway:
        for node in (full, gone, good):
            await node.pod()
        await gateway.warm(3)
        await gone.stop_agent()
        made = await gateway.made(docker_image=IMAGES[0])
        assert await which(gateway, made) == IMAGES[0]
        assert len(good.engine.pulls) == 1


@pytest.mark.slow
async def test_nodes_that_all_fail_end_the_create(world: World, nodes: list[ImageNode]) -> None:
    nodes[0].engine.refuse[IMAGES[0], None] = ImageError(Kind.NO_SPACE, "the disk is full: enlarge it")
    async with laying_gateway(world, agent_outage=5.0) as gateway:
        await nodes[0].pod()
        await gateway.warm()
        answer = await gateway.settled(await gateway.create(docker_image=IMAGES[0]))
        assert (answer["errorType"], answer["errorMessage"]) == (
            "IMAGE_PULL_FAILED",
            "the disk is full: enlarge it",
        )
        await nodes[0].stop_agent()
        answer = await gateway.settled(await gateway.create(docker_image=IMAGES[1]))
        assert answer["errorType"] == "START_FAILED"
        assert answer["errorMessage"].startswith("the node agent of n1 does not answer: ")


async def test_a_private_image_needs_its_tenants_credentials(
    world: World, nodes: list[ImageNode], caplog: pytest.LogCaptureFixture
) -> None:
    node = nodes[0]
    node.engine.refuse[SECRET, None] = ImageError(Kind.UNAUTHORIZED, "no right: send credentials")
    credentials = world.directory / "credentials"
    credentials.mkdir()
    entry = {"username": USER, "password": PASSWORD}
    (credentials / "alpha.json").write_text(json.dumps({"auths": {f"https://{PRIVATE}/v2/": entry}}))
    (credentials / "beta.json").write_text('{"auths": {"another.example": {"auth": "YTpi"}}}')
    caplog.set_level(logging.DEBUG)
    async with laying_gateway(world, registry_credentials=credentials) as gateway:
        for _ in range(3):
            await node.pod()
        await gateway.warm(3)
        made = await gateway.made(docker_image=SECRET)
        assert await which(gateway, made) == SECRET
        auth = node.engine.pulls[0][1]
        assert auth is not None
        assert (auth.username, auth.password) == (USER, PASSWORD)
        other = {"Authorization": "Bearer other"}
        body = {"docker_image": SECRET, "wait_seconds": 20}
        sizes = {"cpu_cores": 1.0, "memory_gb": 0.25, "disk_size_gb": 0.0625, "pids": 256}
        refused = await gateway.client.post("/api/v1/sandbox", json={**body, **sizes}, headers=other)
        assert refused.json()["errorType"] == "IMAGE_PULL_FAILED", "although the node has it"
        env = await gateway.run(
            made["id"], "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'"
        )
        assert PASSWORD not in env
    assert PASSWORD not in caplog.text


async def test_a_pull_without_progress_is_given_up(world: World, nodes: list[ImageNode]) -> None:
    node = nodes[0]
    node.engine.gate.clear()
    async with laying_gateway(world, image_hold=0.1, image_stall=0.5) as gateway:
        await node.pod()
        await gateway.warm()
        answer = await gateway.settled(await gateway.create(docker_image=IMAGES[0]))
        assert (answer["status"], answer["errorType"]) == ("ERROR", "IMAGE_PULL_FAILED")
        assert "has not prepared the image, without progress for " in answer["errorMessage"]
        await gateway.warm()


async def test_an_agent_that_restarts_during_a_pull_goes_on(world: World, nodes: list[ImageNode]) -> None:
    node = nodes[0]
    node.engine.gate.clear()
    async with laying_gateway(world, image_hold=0.1) as gateway:
        await node.pod()
        await gateway.warm()
        made = (await gateway.create(docker_image=IMAGES[0], wait_seconds=0)).json()
        await until(lambda: node.engine.pulls)
        await node.stop_agent()
        await node.start_agent()
        node.engine.gate.set()
        await until(lambda: gateway.gateway.directory.get(made["id"]).status == "RUNNING")
        assert await which(gateway, made) == IMAGES[0]
        assert len(node.engine.pulls) == 2


async def test_an_agent_that_is_away_for_a_while_fails_no_create(
    world: World, nodes: list[ImageNode]
) -> None:
    node = nodes[0]
    async with laying_gateway(world) as gateway:
        await node.pod()
        await gateway.warm()
        await node.stop_agent()
        made = (await gateway.create(docker_image=IMAGES[0], wait_seconds=0)).json()

        async def waits() -> bool:
            message = (await gateway.get(made["id"]))["pendingMessage"] or ""
            return message.startswith("the node agent of n1 does not answer")

        await until(waits)
        await node.start_agent()
        await until(lambda: gateway.gateway.directory.get(made["id"]).status == "RUNNING")
        assert await which(gateway, made) == IMAGES[0]


async def test_a_claim_that_fails_leaves_no_use_of_its_image(world: World, nodes: list[ImageNode]) -> None:
    """Also when the slot stays: it would hold any number of images on its node's disk."""
    node = nodes[0]
    async with laying_gateway(world, image_unlaid=0.2) as gateway:
        await node.pod()
        await gateway.warm()
        refused = await gateway.create(docker_image=IMAGES[0], network_denylist=["a.example"])
        assert refused.status_code == 422, refused.text
        assert any(each.endswith("/uses") for each in node.requests)
        await gateway.warm()
        await until(lambda: not node.uses())
