"""Images on Kubernetes: an invalid reference is refused with its field, a failed pull ends the create."""

from __future__ import annotations

import asyncio

import pytest

from tests.gateway.kubernetes_world import IMAGE, NEEDS_API_SERVER, TEMPLATE, World

pytestmark = NEEDS_API_SERVER


async def test_an_image_that_cannot_be_pulled_is_told_to_the_caller(world: World) -> None:
    kubelet = world.kubelet
    kubelet.make_cold = False
    async with world.gateway() as gateway:
        creating = asyncio.create_task(gateway.create())
        [name] = await kubelet.until(lambda: list(kubelet.sandboxes))
        await kubelet.set_sandbox_status(name, phase="Ended", verdict="image_pull", message="no such image")
        answer = await gateway.settled(await creating)
        assert (answer["status"], answer["errorType"]) == ("ERROR", "IMAGE_PULL_FAILED")
        assert "no such image" in answer["errorMessage"]


async def test_what_the_api_server_refuses_is_a_422_with_the_field(world: World) -> None:
    async with world.gateway() as gateway:
        host = await gateway.create(docker_image="host")
        assert (host.status_code, host.json()["errors"][0]["param"]) == (422, "docker_image"), host.text
        spaces = await gateway.create(docker_image="no image")
        assert (spaces.status_code, spaces.json()["errors"][0]["param"]) == (422, "docker_image"), spaces.text


@pytest.mark.parametrize("image", ["/no/such/directory", "no such:image", "name/UPPER", "host"])
async def test_an_image_that_no_registry_can_have_is_refused_at_once(world: World, image: str) -> None:
    async with world.gateway("a") as gateway:
        answer = await gateway.create(docker_image=image)
        assert answer.status_code == 422
        assert answer.json()["detail"].startswith("docker_image: ")
        checked = await gateway.client.post("/api/v1/template/check-docker-image", json={"image": image})
        assert checked.json()["accessible"] is False
        assert world.kubelet.sandboxes == {}


async def test_a_check_of_an_image_says_whether_anything_has_looked(world: World) -> None:
    async with world.gateway() as gateway:
        path, body = "/api/v1/template/check-docker-image", {"image": IMAGE}
        unknown = (await gateway.client.post(path, json=body)).json()
        assert (unknown["accessible"], unknown["checked"]) == (True, False)
        assert "not checked" in unknown["details"]
        await world.kubelet.pod(TEMPLATE, pool="default")
        await gateway.warm()
        known = (await gateway.client.post(path, json=body)).json()
        assert (known["accessible"], known["checked"]) == (True, True)
