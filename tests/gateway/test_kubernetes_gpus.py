"""GPUs that a create asks of Kubernetes: in the Sandbox that starts its pod, and what it waits for until one is free."""

from __future__ import annotations

from sandlot_gateway.backends.kubernetes.translate import from_kube
from sandlot_kube.objects import Sandbox

from tests.gateway.image_node import IMAGES, ImageNode, laying_gateway
from tests.gateway.kubernetes_world import FIELDS, NEEDS_API_SERVER, World
from tests.waiting import until

pytestmark = NEEDS_API_SERVER

FULL = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."


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
        unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": FULL}
        await kubelet.set_status(name, conditions=[unplaced])
        backend = gateway.gateway.backend
        await until(lambda: backend.unplaced(from_kube(template)))
        assert await message() == f"no node has room for it: {FULL}"
        await kubelet.set_status(name, conditions=[{**unplaced, "status": "True", "message": ""}])
        await until(lambda: backend.unplaced(from_kube(template)) is None)
        assert await message() is None


async def test_pods_with_gpus_run_no_command_of_their_image(world: World, nodes: list[ImageNode]) -> None:
    async with laying_gateway(world) as gateway:
        body = {"docker_image": IMAGES[0], "run_image_command": True, "gpu_count": 1}
        answer = await gateway.client.post("/api/v1/sandbox", json=body)
        assert answer.status_code == 422, answer.text
        (error,) = answer.json()["errors"]
        assert error["param"] == "run_image_command"
        assert "pods with GPUs keep the image" in error["details"]
