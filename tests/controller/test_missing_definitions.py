"""A cluster without one of our CustomResourceDefinitions: the leader says what is missing and what to do, and goes on once it is there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml
from sandlot_controller.controller import Controller
from sandlot_kube import paths

from tests.controller.cluster import Cluster
from tests.controller.conftest import CRDS
from tests.controller.pages import page, shows, started, told
from tests.kube.apiserver import ApiServer
from tests.waiting import SECONDS, until, wait_until

pytestmark = pytest.mark.programs

COMMAND = "run `kubectl apply --server-side --force-conflicts -f charts/sandlot/crds`"


class Definition:
    """One of the chart's, which a test removes and installs."""

    def __init__(self, server: ApiServer, plural: str) -> None:
        self._server = server
        self._crd = yaml.safe_load((CRDS / f"{plural}.yaml").read_text())
        self._path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.sandlot.dev"

    def remove(self) -> None:
        self._server.call("DELETE", self._path)
        served = "/apis/sandlot.dev/v1alpha1"
        plural = self._crd["spec"]["names"]["plural"]
        wait_until(
            lambda: all(one["name"] != plural for one in self._server.call("GET", served)["resources"]),
            what=f"{plural} are gone",
        )

    def install(self) -> None:
        self._server.apply_crd(self._crd)


@contextmanager
def removed(server: ApiServer, plural: str) -> Iterator[Definition]:
    definition = Definition(server, plural)
    definition.remove()
    try:
        yield definition
    finally:
        definition.install()


async def readiness(controller: Controller) -> str:
    answer = await page(controller, "readyz")
    assert answer.status_code == 200  # no other replica would do better
    return answer.text


async def test_without_image_warmups_it_leads_and_says_what_is_missing(
    cluster: Cluster, resources: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    with removed(resources, "imagewarmups") as definition:
        async with cluster.controlled(list_timeout=2.0) as controller:
            await until(lambda: shows(controller, "kopf", True), pause=0.1)
            text = await readiness(controller)
            assert text.startswith("cannot read sandboxes and imagewarmups with kopf: "), text
            assert "imagewarmups.sandlot.dev" in text
            assert "no image warm-up begins" in text
            assert COMMAND in text
            assert len(told(caplog, COMMAND)) == 1
            await cluster.pool(size=1)
            await cluster.until(cluster.warm, "a warm pod")
            definition.install()
            await until(lambda: shows(controller, "kopf", False), pause=0.1)
            assert await readiness(controller) == "ok\n"
            assert controller.working.is_set()
            await warmed(cluster)


async def warmed(cluster: Cluster) -> None:
    """Wait until the controller has seen a warm-up."""
    body = {
        "apiVersion": "sandlot.dev/v1alpha1",
        "kind": "ImageWarmup",
        "metadata": {"name": "w"},
        "spec": {"tenant": "alpha", "images": [{"name": "python:3.12"}]},
    }
    await cluster.client.request("POST", paths.warmups(cluster.namespace), body=body)

    async def seen() -> bool:
        found = await cluster.client.request("GET", paths.warmups(cluster.namespace, "w"))
        return bool(json.loads(found).get("status"))

    await until(seen)


async def test_without_pools_it_cannot_lead_and_says_what_is_missing(
    cluster: Cluster, resources: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    with removed(resources, "sandboxpools") as definition:
        async with started(cluster.controller(list_timeout=2.0, lease_seconds=12.0)) as controller:
            await until(lambda: shows(controller, "sandboxpools", True), pause=0.1)
            path = paths.pools(cluster.namespace)
            text = await readiness(controller)
            assert text.startswith(f"cannot read {path}: "), text
            assert "sandboxpools.sandlot.dev" in text
            assert COMMAND in text
            await until(lambda: told(caplog, "cannot lead: "))
            message = told(caplog, "cannot lead: ")[0]
            assert COMMAND in message
            assert "ClusterRole" not in message
            definition.install()
            await asyncio.wait_for(controller.working.wait(), SECONDS)
            assert await readiness(controller) == "ok\n"
