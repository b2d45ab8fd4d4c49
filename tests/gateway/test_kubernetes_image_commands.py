"""Creates that run their image's command in pods: the node agent tells the command, where a slot takes the image."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sandlot_gateway.core.slot import Phase

from tests.gateway.image_node import IMAGES, OWN, ImageNode, laying_gateway, pod_of, template_of, which
from tests.gateway.kubernetes_world import NEEDS_API_SERVER, Running, World
from tests.waiting import until

pytestmark = NEEDS_API_SERVER


async def configure(node: ImageNode, image: str, **config: Any) -> None:
    attached = await node.engine.attach(node.engine.id_of(image))
    node.engine.attached[attached.id] = replace(attached, config=replace(attached.config, **config))


async def said(gateway: Running, made: dict[str, Any]) -> str:
    return (await gateway.client.get(f"/api/v1/sandbox/{made['id']}/logs")).json()["logs"]


async def test_a_slot_runs_the_command_of_the_image_that_it_takes(
    world: World, nodes: list[ImageNode]
) -> None:
    node = nodes[0]
    command = {"entrypoint": ("/bin/sh", "-c", "echo $0 $1"), "cmd": ("of", "image"), "stop_signal": "SIGINT"}
    for image in (IMAGES[0], OWN):
        await configure(node, image, **command)
    async with laying_gateway(world) as gateway:
        pods = {await node.pod(), await node.pod(OWN)}
        await gateway.warm(2)
        # The pod's own image, too: only the agent knows its configuration.
        for image in (OWN, IMAGES[0]):
            made = await gateway.made(docker_image=image, run_image_command=True)
            await until(lambda made=made: said(gateway, made), what="logs")
            assert await said(gateway, made) == "of image\n"
            assert await which(gateway, made) == image
            assert pod_of(gateway, made) in pods
            assert made["startCommand"] == {
                "executable": "/bin/sh",
                "args": ["-c", "echo $0 $1", "of", "image"],
            }
            assert made["imageDigest"] == node.engine.ids[image]


async def test_a_create_fails_for_an_image_without_a_command_and_gets_no_pod_that_keeps_its_image(
    world: World, nodes: list[ImageNode]
) -> None:
    async with laying_gateway(world) as gateway:
        slot = await nodes[0].pod()
        await gateway.warm(1)
        answer = await gateway.create(docker_image=IMAGES[0], run_image_command=True)
        assert answer.status_code == 422, answer.text
        assert f"the image '{IMAGES[0]}' has neither ENTRYPOINT nor CMD" in answer.text
        found = gateway.gateway.supply.slots.get(slot)
        assert found is not None
        assert found.phase is Phase.WARM
        await configure(nodes[0], OWN, entrypoint=("/bin/sh", "-c", "echo own"))
        keeps = await world.kubelet.pod(template_of(OWN), pool="default", node="n1")
        await gateway.warm(2)
        made = await gateway.made(docker_image=OWN, run_image_command=True)
        assert pod_of(gateway, made) == slot
        assert keeps in world.kubelet.sidecars
        assert gateway.gateway.supply.slots.phase(keeps) is Phase.WARM


async def test_without_slots_it_is_refused_at_once(world: World) -> None:
    async with world.gateway("a") as gateway:
        answer = await gateway.create(run_image_command=True)
        assert answer.status_code == 422, answer.text
        (error,) = answer.json()["errors"]
        assert (error["param"], "slots.enabled" in error["details"]) == ("run_image_command", True)
