"""Image warm-ups are resources, which the controller carries out: the gateway creates them and shows their status."""

from __future__ import annotations

import pytest
from sandlot_gateway.backends.kubernetes.warmups import KubernetesWarmups
from sandlot_gateway.core.backend import BackendError, Unavailable
from sandlot_gateway.core.warmups import WarmupId
from sandlot_kube import paths
from sandlot_kube.client import KubeClient

from tests.gateway.kubernetes_world import NEEDS_API_SERVER, World
from tests.kube.apiserver import ApiServer

pytestmark = NEEDS_API_SERVER

URL = "/api/v1/image-warmups"
STATUS = {
    "phase": "Running",
    "startedAt": "2026-01-01T00:00:00Z",
    "ready": 1,
    "failed": 1,
    "copies": 5,
    "copiesReady": 3,
    "bytes": 1 << 40,
    "secondsLeft": 90,
    "errors": [{"image": "gone", "node": "n1", "message": "no such image"}],
    "message": "waiting",
}


async def test_a_warm_up_is_a_resource(world: World) -> None:
    async with world.gateway(api_keys="key:alpha::operate,b:beta") as gateway:
        images = [{"image": "python:3.12", "weight": 3}, {"image": "gone"}, {"image": "python:3.12"}]
        made = await gateway.client.post(URL, json={"images": images})
        assert made.status_code == 201, made.text
        name = made.json()["id"]
        assert (made.json()["state"], made.json()["images"], made.json()["tenant"]) == ("PENDING", 2, "alpha")
        path = paths.warmups(world.namespace, name)
        assert world.server.call("GET", path)["spec"] == {
            "tenant": "alpha",
            "images": [{"name": "python:3.12", "weight": 4}, {"name": "gone", "weight": 1}],
        }
        content_type = "application/merge-patch+json"
        world.server.call("PATCH", f"{path}/status", {"status": STATUS}, content_type=content_type)
        shown = (await gateway.client.get(f"{URL}/{name}")).json()
        assert (shown["state"], shown["images_ready"], shown["images_failed"]) == ("RUNNING", 1, 1)
        assert (shown["copies"], shown["copies_ready"], shown["bytes"]) == (5, 3, 1 << 40)
        assert (shown["seconds_left"], shown["message"]) == (90, "waiting")
        assert shown["errors"] == [{"image": "gone", "node": "n1", "message": "no such image"}]
        done = {**STATUS, "phase": "Done", "finishedAt": "2026-01-01T00:01:00Z"}
        world.server.call("PATCH", f"{path}/status", {"status": done}, content_type=content_type)
        listed = (await gateway.client.get(URL)).json()["warmups"]
        assert [(one["id"], one["state"], one["finished_at"]) for one in listed] == [
            (name, "DONE", "2026-01-01T00:01:00.000000Z")
        ]
        other = {"Authorization": "Bearer b"}
        assert (await gateway.client.get(f"{URL}/{name}", headers=other)).status_code == 404
        assert (await gateway.client.delete(f"{URL}/{name}")).status_code == 200
        assert (await gateway.client.delete(f"{URL}/{name}")).status_code == 404
        assert (await gateway.client.get(URL)).json() == {"warmups": []}


async def test_a_cluster_without_the_resource_is_named(apiserver: ApiServer) -> None:
    """As after an upgrade without the new CRDs: an API group without any resource answers the same."""
    client = KubeClient(apiserver.access(namespace=apiserver.namespace("plain")))
    try:
        warmups = KubernetesWarmups(client, namespace="plain/missing")
        with pytest.raises(BackendError, match="the cluster has no resource ImageWarmup"):
            await warmups.all()
    finally:
        await client.close()


async def test_an_api_server_that_is_away_is_told(world: World) -> None:
    access = world.server.access(namespace=world.namespace)
    access.server = "http://127.0.0.1:1"
    client = KubeClient(access)
    try:
        warmups = KubernetesWarmups(client, namespace=world.namespace)
        for call in (warmups.all(), warmups.find(WarmupId("w")), warmups.delete(WarmupId("w"))):
            with pytest.raises(Unavailable):
                await call
    finally:
        await client.close()
