"""Which registries images may come from, and what a create asks for that no sandbox here can have."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError
from sandlot_gateway.registries import refusal
from sandlot_gateway.settings import Settings

from tests.gateway.conftest import Running, running
from tests.gateway.kubernetes_world import World
from tests.gateway.machine import Machine

PRIVATE = [
    "127.0.0.1/x",
    "127.0.0.1:5000/x:1",
    "127.1/x",
    "0x7f.1/x",
    "0.0.0.0/x",
    "10.1.2.3/x",
    "169.254.169.254/latest",
    "192.168.0.1:5000/x",
    "docker://172.16.0.1/x",
    "100.64.0.1/x",
    "localhost/x",
    "LOCALHOST/x",
    "localhost:5000/x",
    "registry:5000/x",
    "registry.sandlot.svc/x",
    "registry.sandlot.svc.cluster.local:443/x",
    "metadata.google.internal/x",
    "a.home.arpa/x",
    "2130706433:5000/x",
    "0x7f000001:80/x",
    "127.0.0.0x1:80/x",
    "017700000001:80/x",
    "192.168.1/x",
    "224.0.0.1/x",
]
PUBLIC = [
    "python:3.12",
    "team/x",
    "ghcr.io/a/b",
    "registry.example:5000/x",
    "8.8.8.8/x",
    "host",
    "/tmp/a.tar",
]


@pytest.mark.parametrize("image", PRIVATE)
async def test_images_of_private_addresses_and_internal_names_are_refused(box: Running, image: str) -> None:
    answers = {
        "docker_image": await box.client.post("/api/v1/sandbox", json={"docker_image": image}),
        "image": await box.client.put("/api/v1/pools/p", json={"image": image, "size": 1}),
    }
    for field, answer in answers.items():
        assert (answer.status_code, answer.json()["errors"][0]["param"]) == (422, field), answer.text
    checked = await box.client.post("/api/v1/template/check-docker-image", json={"image": image})
    assert checked.json()["accessible"] is False
    assert box.machine.launched == 0


@pytest.mark.parametrize("image", PUBLIC)
def test_public_names_and_what_is_not_fetched_are_allowed(image: str) -> None:
    assert refusal(image, allowed=()) is None


async def test_an_operators_list_is_the_only_one(state_dir: Path, machine: Machine) -> None:
    allowed = "ghcr.io,*.example,10.0.0.1:5000"
    async with running(state_dir, machine, registries=allowed) as box:
        for image in ("ghcr.io/a/b", "a.example/x", "10.0.0.1:5000/x", "host"):
            assert (await box.create(docker_image=image))["dockerImage"] == image
        for image in ("python:3.12", "example/x", "10.0.0.1/x", "ghcr.io:444/x", "xghcr.io/a"):
            answer = await box.client.post("/api/v1/sandbox", json={"image": image})
            assert (answer.status_code, answer.json()["errors"][0]["param"]) == (422, "image"), answer.text
            assert "*.example, 10.0.0.1:5000, ghcr.io" in answer.json()["detail"]


def test_the_setting_is_a_list_by_commas_or_in_json(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("docker.io, *.example", '["docker.io","*.example"]'):
        monkeypatch.setenv("SANDLOT_REGISTRIES", text)
        assert Settings().registries == ["docker.io", "*.example"]
    monkeypatch.setenv("SANDLOT_REGISTRIES", "https://x")
    with pytest.raises(ValidationError, match="must be HOST"):
        Settings()


@pytest.mark.parametrize(
    "said",
    [{"guaranteed": True}, {"region": "us"}, {"registry_credentials_id": "x"}],
    ids=lambda said: next(iter(said)),
)
async def test_what_no_sandbox_here_can_have_is_refused_by_its_name(
    box: Running, said: dict[str, object]
) -> None:
    answer = await box.client.post("/api/v1/sandbox", json={"docker_image": "host", **said})
    assert (answer.status_code, answer.json()["errors"][0]["param"]) == (422, next(iter(said))), answer.text


async def test_what_primes_clients_send_by_themselves_is_taken(box: Running) -> None:
    made = await box.create(guaranteed=False, region=None, registry_credentials_id=None, team_id="t")
    assert (made["region"], made["registryCredentialsId"], made["teamId"]) == (None, None, "t")


@pytest.mark.programs
async def test_the_kubernetes_backend_refuses_them_too(world: World) -> None:
    images = ["10.0.0.1:5000/x", "[::1]:5000/x", "[fc00::1]/x", "user:word@10.0.0.1/x", "0x7f.1/x"]
    async with world.gateway() as gateway:
        for image in images:
            made = await gateway.client.post("/api/v1/sandbox", json={"docker_image": image})
            pool = await gateway.client.put("/api/v1/pools/p", json={"image": image, "size": 1})
            checked = await gateway.client.post("/api/v1/template/check-docker-image", json={"image": image})
            assert (made.status_code, made.json()["errors"][0]["param"]) == (422, "docker_image"), image
            assert (pool.status_code, pool.json()["errors"][0]["param"]) == (422, "image"), image
            assert checked.json()["accessible"] is False, image
        assert world.kubelet.sandboxes == {}
