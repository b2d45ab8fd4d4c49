"""One kind of instance for all images: a warm one takes the image that a create names, whatever it had before."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sandlot_contract.template import Template

from tests import plain_http
from tests.local.conftest import SMALL, Machine
from tests.local.oci import layer, one_image
from tests.local.test_image_sandboxes import small_root
from tests.stack import Stack, private_stack
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces and cgroups"),
]
API = "/api/v1"
LOOK = "pwd; cat /app/hello; id -un; echo $FLAVOUR"
SEEN = "/app\nfrom the image\nuser\nsmall\n"


async def test_an_instance_of_the_host_s_root_takes_an_image_and_goes_back(machine: Machine) -> None:
    image = small_root(machine.directory / "small.tar")
    async with machine.gateway() as gateway:
        instance = await gateway.backend.launch(SMALL)
        await gateway.until_ready(instance)
        token = await gateway.claim(instance, image=await gateway.image_for(instance, str(image)))
        assert (await gateway.run(instance, token, LOOK))["stdout"] == SEEN
        reset = await gateway.call(instance, "POST", "/v1/reset", {"keep_claim": False}, token=instance.token)
        assert reset.json()["equal"], reset.body
        await gateway.until_ready(instance, generation=2)
        token = await gateway.claim(instance, image=await gateway.image_for(instance, "host"))
        seen = await gateway.run(
            instance, token, f"ls {machine.state_dir} {image}; test -e /app/hello || id -un"
        )
        assert seen["stdout"] == "root\n", "the host's root, with what is hidden of it"
        await gateway.backend.destroy_all(timeout=60)


async def test_an_instance_of_an_image_takes_the_host_s_root(machine: Machine) -> None:
    image = small_root(machine.directory / "small.tar")
    async with machine.gateway() as gateway:
        instance = await gateway.backend.launch(Template(str(image), memory=256 << 20, pids=64))
        await gateway.until_ready(instance)
        document = await gateway.image_for(instance, "host")
        token = await gateway.claim(instance, image=document)
        seen = await gateway.run(
            instance, token, f"ls -A {machine.state_dir}; ls -A /tmp; id -un; echo $PATH"
        )
        assert seen["stdout"] == f"root\n{document['env']['PATH']}\n", seen
        await gateway.backend.destroy_all(timeout=60)


async def test_an_image_shows_its_preparation_while_it_runs(machine: Machine) -> None:
    image = str(small_root(machine.directory / "small.tar"))
    async with machine.gateway() as gateway:
        assert gateway.backend.image_progress(image, tenant="default") is None
        preparing = asyncio.create_task(gateway.backend.check_image(image))
        await asyncio.sleep(0)
        text = gateway.backend.image_progress(image, tenant="default")
        assert text == "preparing the image: it is pulled and unpacked on this machine"
        assert gateway.backend.image_progress("host", tenant="default") is None
        await preparing
        assert gateway.backend.image_progress(image, tenant="default") is None


@pytest.fixture
def stack() -> Iterator[Stack]:
    with private_stack("--pool", "warm=2", descriptors=True) as stack:
        yield stack


@pytest.fixture
def client(stack: Stack) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {stack.api_key}"}
    with plain_http.client(base_url=stack.url, headers=headers, timeout=60) as client:
        wait_until(lambda: pool(client)["ready"] == 2)
        yield client


def pool(client: httpx.Client) -> dict[str, Any]:
    (found,) = client.get(f"{API}/pools").json()["pools"]
    return found


def create(client: httpx.Client, image: str) -> dict[str, Any]:
    answer = client.post(f"{API}/sandbox", json={"docker_image": image})
    assert answer.status_code == 201, answer.text
    assert answer.json()["status"] == "RUNNING", answer.text
    return answer.json()


def run(client: httpx.Client, sandbox_id: str, command: str) -> str:
    answer = client.post(f"/sbx/{sandbox_id}/exec", json={"command": command, "timeout": 20})
    assert answer.status_code == 200, answer.text
    return answer.json()["stdout"]


def test_a_create_of_any_image_gets_a_warm_instance(
    stack: Stack, client: httpx.Client, tmp_path: Path
) -> None:
    image = str(small_root(tmp_path / "small.tar"))
    for _ in range(3):
        made = create(client, image)
        assert made["poolHit"], made
        assert made["imageDigest"].startswith("sha256:")
        assert run(client, made["id"], LOOK) == SEEN
        plain = create(client, "host")
        assert plain["imageDigest"] is None
        assert run(client, plain["id"], "test -e /app/hello || id -un") == "root\n"
        for one in (made, plain):
            assert client.delete(f"{API}/sandbox/{one['id']}").status_code == 200
        wait_until(lambda: pool(client)["ready"] >= 2)
    kept = create(client, image)
    stack.kill()
    stack.start()
    again = client.get(f"{API}/sandbox/{kept['id']}").json()
    assert (again["status"], again["imageDigest"]) == ("RUNNING", kept["imageDigest"])
    assert client.post(f"{API}/sandbox/{kept['id']}/reset").json()["equal"] is True
    auth = again.get("gatewayAuth") or kept["gatewayAuth"]
    answer = client.post(
        f"/{auth['user_ns']}/{auth['job_id']}/exec",
        json={"command": LOOK},
        headers={"Authorization": f"Bearer {auth['token']}"},
    )
    assert answer.json()["stdout"] == SEEN


def test_an_image_that_is_none_costs_no_warm_instance(client: httpx.Client, tmp_path: Path) -> None:
    wrong = one_image([layer()], architecture="s390x").archive(tmp_path / "wrong.tar")
    for image, why in ((str(tmp_path / "no.tar"), "no such file"), (str(wrong), "s390x")):
        answer = client.post(f"{API}/sandbox", json={"docker_image": image})
        text = answer.text
        assert why in text, text
        assert '"RUNNING"' not in text
    assert pool(client)["ready"] == 2
