"""Slot pods: a claim lays its image under any warm pod of its size, prepared by the agent of the pod's node."""

from __future__ import annotations

import asyncio

from sandlot_gateway.core.slot import Phase

from tests import plain_http
from tests.gateway.image_node import (
    IMAGES,
    OWN,
    ImageNode,
    laying_gateway,
    make_pool,
    pod_of,
    template_of,
    two_laying_gateways,
    which,
)
from tests.gateway.kubernetes_world import NEEDS_API_SERVER, Running, World
from tests.waiting import until

pytestmark = NEEDS_API_SERVER


def is_warm(gateway: Running, pod: str, *, generation: int) -> bool:
    slot = gateway.gateway.supply.slots.get(pod)
    return slot is not None and (slot.phase, slot.generation) == (Phase.WARM, generation)


async def test_pods_without_an_image_serve_every_image(world: World, nodes: list[ImageNode]) -> None:
    node = nodes[0]
    async with laying_gateway(world) as gateway:
        pods = [await node.pod() for _ in range(3)]
        await gateway.warm(3)
        made = [await gateway.made(docker_image=image) for image in IMAGES[:3]]
        assert [await which(gateway, one) for one in made] == IMAGES[:3]
        assert {pod_of(gateway, one) for one in made} == set(pods)
        assert [one["imageDigest"] for one in made] == [node.engine.ids[image] for image in IMAGES[:3]]
        assert all(one["poolHit"] for one in made)
        assert node.uses() == {
            image: {pod_of(gateway, one)} for image, one in zip(IMAGES, made, strict=False)
        }
        assert set(world.kubelet.sidecars) == set(pods), "no pod was started"
        found = world.kubelet.sandboxes
        await world.kubelet.until(lambda: len(found) == 3)
        assert {one.spec.template.image for one in found.values()} == set(IMAGES[:3]), "as recorded"


async def test_a_reused_pod_gets_one_image_after_the_other(world: World, nodes: list[ImageNode]) -> None:
    node = nodes[0]
    await make_pool(world, reuse={"policy": "tenant"})
    async with two_laying_gateways(world) as (gateway, other):
        pod = await node.pod(OWN, reused=True)
        for number, image in enumerate([OWN, *IMAGES[:2], OWN, IMAGES[0]]):
            one = (gateway, other)[number % 2]
            await until(lambda one=one, number=number: is_warm(one, pod, generation=number + 1))
            made = await one.made(docker_image=image)
            assert pod_of(one, made) == pod
            claimed = one.gateway.supply.slots.get(pod)
            assert claimed is not None
            assert claimed.instance.image == image
            if number:
                assert await which(one, made) == image
                await until(lambda image=image: node.uses() == {image: {pod}})
            assert (await one.client.delete(f"/api/v1/sandbox/{made['id']}")).status_code == 200
        # Its own image costs no preparation; once another one was laid, it is an image like all others.
        assert [pull for pull, _ in node.engine.pulls] == [*IMAGES[:2], OWN]


async def test_creates_of_many_images_take_turns_in_the_slots_of_a_pool(
    world: World, nodes: list[ImageNode]
) -> None:
    await make_pool(world, reuse={"policy": "tenant"})
    # A pod that waits for its image longer than its hold would go to the next create while the places are read.
    async with laying_gateway(world, image_hold=30.0) as gateway:
        pods = {await nodes[0].pod(reused=True), await nodes[1].pod(reused=True)}
        await gateway.warm(2)
        waiting = [(await gateway.create(docker_image=image, wait_seconds=0)).json() for image in IMAGES]
        positions = [(await gateway.get(one["id"]))["queuePosition"] for one in waiting]
        assert [position for position in positions if position is not None][-1] == 4
        left = {one["id"]: image for one, image in zip(waiting, IMAGES, strict=True)}
        while left:
            running = [each for each in left if gateway.gateway.directory.get(each).status == "RUNNING"]
            for sandbox_id in running:
                made = await gateway.get(sandbox_id)
                assert await which(gateway, made) == left.pop(sandbox_id)
                assert (await gateway.client.delete(f"/api/v1/sandbox/{sandbox_id}")).status_code == 200
            await asyncio.sleep(0.05)
        assert set(world.kubelet.sidecars) == pods, "no pod was started"


async def test_a_slot_that_has_the_image_goes_first_then_one_whose_node_has_it(
    world: World, nodes: list[ImageNode]
) -> None:
    first, second = nodes
    async with laying_gateway(world) as gateway:
        own, bare = await second.pod(IMAGES[0]), await second.pod()
        others = [await first.pod() for _ in range(8)]
        await gateway.warm(10)
        made = await gateway.made(docker_image=IMAGES[0])
        assert pod_of(gateway, made) == own
        assert (first.engine.pulls, second.engine.pulls) == ([], [])
        client = plain_http.async_client(headers={"Authorization": "Bearer a token of the node agents"})
        async with client:
            url = f"http://{second.ip}:8660/v1/images?wait=10"
            assert (await client.post(url, json={"image": IMAGES[1]})).status_code == 200
        await until(lambda: gateway.gateway.backend.nodes_with(IMAGES[1]) == {"n2"})
        made = await gateway.made(docker_image=IMAGES[1])
        assert pod_of(gateway, made) == bare
        made = await gateway.made(docker_image=IMAGES[1])
        assert pod_of(gateway, made) in others


async def test_a_hot_claim_costs_one_call_of_the_agent(world: World, nodes: list[ImageNode]) -> None:
    node = nodes[0]
    # A loaded machine takes longer than what a gateway remembers of a node, and than one wait for a preparation.
    patient = {"image_list_pause": 3600.0, "image_remembered": 3600.0, "image_hold": 30.0}
    async with laying_gateway(world, **patient) as gateway:
        for _ in range(3):
            await node.pod()
        await gateway.warm(3)
        await gateway.made(docker_image=IMAGES[0])
        node.requests.clear()
        await gateway.made(docker_image=IMAGES[0])
        image_id = node.engine.ids[IMAGES[0]]
        assert node.requests == [f"POST /v1/images/{image_id}/uses"]
        # It has gone since: it is prepared again.
        for sandbox in list(gateway.gateway.directory.live()):
            await gateway.client.delete(f"/api/v1/sandbox/{sandbox.id}")
        entries = node.preparer.ledger.entries[image_id]
        for pod in list(entries.uses):
            node.preparer.unuse(image_id, pod)
        await node.forget(IMAGES[0])
        node.requests.clear()
        made = await gateway.made(docker_image=IMAGES[0])
        assert await which(gateway, made) == IMAGES[0]
        use = f"POST /v1/images/{image_id}/uses"
        assert node.requests == [use, "POST /v1/images", use]


async def test_the_first_claim_of_an_image_that_the_node_has_costs_one_call(
    world: World, nodes: list[ImageNode]
) -> None:
    node = nodes[0]
    headers = {"Authorization": "Bearer a token of the node agents"}
    async with plain_http.async_client(base_url=f"http://{node.ip}:8660/v1", headers=headers) as client:
        answer = await client.post("/images?wait=10", json={"image": IMAGES[0]})
        assert answer.status_code == 200
    async with laying_gateway(world, image_list_pause=0.2) as gateway:
        await node.pod()
        await gateway.warm()
        await until(lambda: gateway.gateway.backend.nodes_with(IMAGES[0]) == {"n1"})
        node.requests.clear()
        made = await gateway.made(docker_image=IMAGES[0])
        assert await which(gateway, made) == IMAGES[0]
        calls = [request for request in node.requests if request != "GET /v1/images"]
        assert calls == ["POST /v1/images"]
        assert node.uses() == {IMAGES[0]: {pod_of(gateway, made)}}


async def test_a_slow_pull_holds_no_pod_and_is_shown(world: World, nodes: list[ImageNode]) -> None:
    node = nodes[0]
    await make_pool(world, reuse={"policy": "never"})  # which spares its creates a cold start
    async with laying_gateway(world, image_hold=0.2) as gateway:
        pod = await node.pod(OWN)
        await gateway.warm()
        node.engine.gate.clear()
        waiting = [(await gateway.create(docker_image=IMAGES[0], wait_seconds=0)).json() for _ in range(3)]

        async def shown() -> bool:
            messages = [(await gateway.get(one["id"]))["pendingMessage"] for one in waiting]
            # The others of the image wait for a pod, and try none whose node prepares it for the first.
            return messages == ["preparing the image on node n1: pulling, 0 of 0 MB"] * 3

        await until(shown)
        assert len(gateway.gateway.supply.slots.warm) == 1
        made = await gateway.made(docker_image=OWN)
        assert pod_of(gateway, made) == pod, "another create gets it meanwhile"
        for _ in range(3):
            await node.pod()
        await gateway.warm(3)
        node.engine.gate.set()
        for one in waiting:
            await until(lambda one=one: gateway.gateway.directory.get(one["id"]).status == "RUNNING")
            found = await gateway.get(one["id"])
            assert found["pendingMessage"] is None
            assert await which(gateway, found) == IMAGES[0]
        assert [pull for pull, _ in node.engine.pulls] == [IMAGES[0]], "one preparation for all three"


async def test_a_create_that_is_deleted_during_a_pull_leaves_nothing(
    world: World, nodes: list[ImageNode]
) -> None:
    node = nodes[0]
    async with laying_gateway(world, image_hold=0.1) as gateway:
        await node.pod()
        await gateway.warm()
        node.engine.gate.clear()
        made = (await gateway.create(docker_image=IMAGES[0], wait_seconds=0)).json()
        await until(lambda: node.engine.pulls)
        assert (await gateway.client.delete(f"/api/v1/sandbox/{made['id']}")).status_code == 200
        await gateway.warm()
        assert node.uses() == {}


async def test_a_pod_of_before_serves_its_own_image_only(world: World, nodes: list[ImageNode]) -> None:
    async with laying_gateway(world) as gateway:
        old = await world.kubelet.pod(template_of(IMAGES[0]), pool="default", node="n1")
        await gateway.warm()
        creating = asyncio.create_task(gateway.create(docker_image=IMAGES[1]))
        await world.kubelet.until(lambda: world.kubelet.sandboxes)  # it starts cold
        made = await gateway.made(docker_image=IMAGES[0])
        assert pod_of(gateway, made) == old
        answer = await gateway.settled(await creating)
        assert answer["status"] == "RUNNING"
        assert not answer["poolHit"]
        assert len(world.kubelet.sidecars) == 2
        slot = await nodes[0].pod()
        await gateway.warm()
        made = await gateway.made(docker_image=IMAGES[1])
        assert (pod_of(gateway, made), await which(gateway, made)) == (slot, IMAGES[1])


async def test_an_end_does_not_wait_for_a_silent_agent(world: World, nodes: list[ImageNode]) -> None:
    node = nodes[0]
    await make_pool(world, reuse={"policy": "tenant"})
    async with laying_gateway(world, agent_timeout=30.0) as gateway:
        pod = await node.pod(reused=True)
        await gateway.warm()
        made = await gateway.made(docker_image=IMAGES[0])
        await gateway.client.delete(f"/api/v1/sandbox/{made['id']}")
        await until(lambda: is_warm(gateway, pod, generation=2))
        node.ends_of_uses.clear()
        made = await gateway.made(docker_image=IMAGES[1])
        await gateway.client.delete(f"/api/v1/sandbox/{made['id']}")
        await until(lambda: is_warm(gateway, pod, generation=3))
        assert node.uses() == {image: {pod} for image in IMAGES[:2]}
        node.ends_of_uses.set()
        await until(lambda: node.uses() == {IMAGES[1]: {pod}})
