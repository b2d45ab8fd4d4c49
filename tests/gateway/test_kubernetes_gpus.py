"""GPUs that a create asks of Kubernetes: in the Sandbox that starts its pod, and what it waits for until one is free."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from sandlot_kube.objects import Sandbox

from tests.gateway.image_node import IMAGES, ImageNode, laying_gateway
from tests.gateway.kubernetes_world import FIELDS, NEEDS_API_SERVER, TEMPLATE, Running, World, pool_fields
from tests.waiting import until

pytestmark = NEEDS_API_SERVER

FULL = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
UNPLACED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": FULL}


async def test_a_create_that_waits_for_a_gpu_says_what_the_scheduler_says(world: World) -> None:
    kubelet = world.kubelet
    kubelet.make_cold = False
    async with world.gateway() as gateway:
        body = {**FIELDS, "gpu_count": 1, "gpu_type": "NVIDIA-L4", "wait_seconds": 0}
        made = (await gateway.client.post("/api/v1/sandbox", json=body)).json()
        assert (made["status"], made["gpuCount"], made["gpuType"]) == ("PENDING", 1, "NVIDIA-L4")

        async def message() -> str | None:
            return (await gateway.client.get(f"/api/v1/sandbox/{made['id']}")).json()["pendingMessage"]

        def start() -> tuple[str, Sandbox] | None:
            return next((item for item in kubelet.sandboxes.items() if not item[1].spec.waits), None)

        name, sandbox = await kubelet.until(start)
        template = sandbox.spec.template
        assert (template.gpu_count, template.gpu_type) == (1, "NVIDIA-L4")
        await kubelet.pod_object(template, cold=name)
        assert await message() is None
        # What another tenant's pool waits for is not told.
        gpus = {"gpu_count": 1, "gpu_type": "NVIDIA-L4"}
        await pool(gateway, "theirs", owner="beta", **gpus)
        theirs = await kubelet.pod_object(template, pool="theirs")
        await kubelet.set_status(theirs, conditions=[{**UNPLACED, "message": "0/2: beta"}])
        await kubelet.set_status(name, conditions=[UNPLACED])
        await until(message)
        assert await message() == f"no node has room for it: {FULL}"
        await kubelet.set_status(name, conditions=[{**UNPLACED, "status": "True", "message": ""}])
        await until(lambda: is_none(message()))


async def test_a_create_that_waits_for_a_pool_says_it_while_none_of_its_pods_has_a_node(world: World) -> None:
    kubelet = world.kubelet
    kubelet.make_cold = False
    async with world.gateway() as gateway:
        await pool(gateway, "shared", size=2)
        first = await kubelet.pod_object(TEMPLATE, pool="shared")
        await kubelet.set_status(first, conditions=[UNPLACED])
        await until(lambda: gateway.gateway.backend.pools()[0].starting)
        made = (await gateway.client.post("/api/v1/sandbox", json={**FIELDS, "wait_seconds": 0})).json()

        async def message() -> str | None:
            return (await gateway.client.get(f"/api/v1/sandbox/{made['id']}")).json()["pendingMessage"]

        await until(message)
        assert await message() == f"no node has room for it: {FULL}"
        assert all(one.spec.waits for one in kubelet.sandboxes.values()), "it has a start of its own"
        await kubelet.pod_object(TEMPLATE, pool="shared", node="n-1")
        await until(lambda: is_none(message()))


async def pool(gateway: Running, name: str, *, size: int = 0, **fields: Any) -> None:
    body = {**pool_fields(), "size": size, **fields}
    answer = await gateway.client.put(f"/api/v1/pools/{name}", json=body)
    assert answer.status_code == 200, answer.text


async def is_none(message: Awaitable[str | None]) -> bool:
    return await message is None


async def test_a_start_with_gpus_is_for_creates_of_its_image_also_with_slots(world: World) -> None:
    """Its pod keeps the image, so another create has to have a start of its own."""
    kubelet = world.kubelet
    kubelet.make_cold = False
    token = world.directory / "agent-token"
    token.write_text("t")
    async with world.gateway(backend={"node_agent_token_file": token}) as gateway:

        async def asked(image: str, **fields: Any) -> str:
            body = {**FIELDS, "docker_image": image, "gpu_count": 1, "wait_seconds": 0, **fields}
            made = (await gateway.client.post("/api/v1/sandbox", json=body)).json()
            assert made["status"] == "PENDING", made
            return made["id"]

        def start(image: str) -> tuple[str, Sandbox] | None:
            its = ((name, one) for name, one in kubelet.sandboxes.items() if not one.spec.waits)
            return next((item for item in its if item[1].spec.template.image == image), None)

        first = await asked("registry.example/one:1")
        name, sandbox = await kubelet.until(lambda: start("registry.example/one:1"))
        await kubelet.pod_object(sandbox.spec.template, cold=name, node="n-1")
        await until(lambda: gateway.gateway.backend.begun(name))
        # Its start goes on, since it has begun.
        assert (await gateway.client.delete(f"/api/v1/sandbox/{first}")).status_code == 200
        await asked("registry.example/two:1")
        await kubelet.until(lambda: start("registry.example/two:1"))


async def test_pods_with_gpus_run_no_command_of_their_image(world: World, nodes: list[ImageNode]) -> None:
    async with laying_gateway(world) as gateway:
        body = {"docker_image": IMAGES[0], "run_image_command": True, "gpu_count": 1}
        answer = await gateway.client.post("/api/v1/sandbox", json=body)
        assert answer.status_code == 422, answer.text
        (error,) = answer.json()["errors"]
        assert error["param"] == "run_image_command"
        assert "pods with GPUs keep the image" in error["details"]
