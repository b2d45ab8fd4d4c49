"""Secrets by reference with the Kubernetes backend: a real API server, real sidecars, two gateways."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import suppress

from sandlot_contract.names import LABEL_TENANT
from sandlot_kube import paths

from tests.gateway.kubernetes_world import NEEDS_API_SERVER, TEMPLATE, World

pytestmark = NEEDS_API_SERVER

VALUE = "value-of-the-secret"


async def test_a_sandbox_has_the_value_and_no_resource_tells_it(world: World) -> None:
    secrets = await asyncio.to_thread(world.server.namespace, "secrets")
    body = {
        "metadata": {"name": "model-api", "labels": {f"{LABEL_TENANT}alpha": "true"}},
        "data": {"token": base64.b64encode(VALUE.encode()).decode()},
    }
    path = f"/api/v1/namespaces/{secrets}/secrets"
    await asyncio.to_thread(world.server.call, "POST", path, body)
    options = {"secrets_namespace": secrets, "api_keys": "key:alpha::operate,other:beta"}
    async with world.gateway("a", **options) as one, world.gateway("b", **options) as other:
        pod = await world.kubelet.pod(TEMPLATE, pool="default")
        await one.warm()
        await other.warm()
        refs = {"TOKEN": {"secret": "model-api", "key": "token"}}
        answer = await one.client.post(
            "/api/v1/sandbox",
            json={"docker_image": TEMPLATE.image, "secret_refs": refs},
            headers={"Authorization": "Bearer other"},
        )
        assert (answer.status_code, answer.json()["errors"][0]["param"]) == (422, "secret_refs.TOKEN")
        made = await one.made(secret_refs=refs, idempotency_key="k")
        assert await one.run(made["id"], "echo $TOKEN") == f"{VALUE}\n"
        record = await world.kubelet.until(lambda: (found := world.kubelet.of_pod(pod)) and found)
        assert record.spec.sandbox_id == made["id"]
        resources = [
            await asyncio.to_thread(world.server.call, "GET", collection)
            for collection in (paths.sandboxes(world.namespace), paths.pods(world.namespace))
        ]
        seen = await other.get(made["id"])
        assert (seen["secrets"], seen["secretRefs"]) == ({"TOKEN": "***"}, refs)
        for text in (json.dumps([*resources, made, seen]), *map(json.dumps, _files(world))):
            assert VALUE not in text
            assert body["data"]["token"] not in text
        await one.client.delete(f"/api/v1/sandbox/{made['id']}")


def _files(world: World) -> list[str]:
    below = [path for name in "ab" for path in (world.directory / name).rglob("*") if path.is_file()]
    found: list[str] = []
    for path in below:
        with suppress(FileNotFoundError):  # of a write that has ended meanwhile
            found.append(path.read_bytes().decode("latin-1"))
    return found
