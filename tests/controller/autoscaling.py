"""Kubernetes' own HorizontalPodAutoscaler controller over the API server of the tests, and one external metric for it."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from sandlot_kube.client import KubeClient
from sandlot_kube.errors import KubeError

from tests.certificates import issued
from tests.kube.apiserver import ApiServer, binary
from tests.waiting import until

_GROUP = "external.metrics.k8s.io"
_SERVICE = "/apis/apiregistration.k8s.io/v1/apiservices"
_NAME = f"v1beta1.{_GROUP}"


class ExternalMetric:
    """What a metrics adapter says of `name`: `value` of the series with `labels`."""

    def __init__(self, name: str, labels: dict[str, str], *, value: int) -> None:
        self.value = value
        self.asked: list[str] = []  # label selectors
        self._name, self._labels = name, labels

    @asynccontextmanager
    async def served(self, client: KubeClient, directory: Path) -> AsyncIterator[None]:
        """Serve it as an aggregated API of the API server."""
        app = web.Application()
        root = f"/apis/{_GROUP}/v1beta1"
        app.add_routes(
            [web.get(root, self._resources), web.get(f"{root}/namespaces/{{ns}}/{{name}}", self._read)]
        )
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        certificate = issued(directory, "localhost")
        await web.TCPSite(runner, "localhost", 0, ssl_context=certificate.server()).start()
        port = runner.addresses[0][1]
        await self._register(client, port)
        try:
            await until(lambda: self._is_available(client), what="the external metric is served")
            yield
        finally:
            await client.request("DELETE", f"{_SERVICE}/{_NAME}")
            await runner.cleanup()

    async def _register(self, client: KubeClient, port: int) -> None:
        # An external name is asked as it is, without the network of a cluster.
        body = {
            "metadata": {"name": "metrics"},
            "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]},
        }
        await client.request("POST", f"/api/v1/namespaces/{client.namespace}/services", body=body)
        spec = {
            "group": _GROUP,
            "version": "v1beta1",
            "service": {"namespace": client.namespace, "name": "metrics", "port": port},
            "insecureSkipTLSVerify": True,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        }
        await client.request("POST", _SERVICE, body={"metadata": {"name": _NAME}, "spec": spec})

    async def _is_available(self, client: KubeClient) -> bool:
        try:
            await client.request("GET", f"/apis/{_GROUP}/v1beta1")
        except KubeError:
            return False
        return True

    async def _resources(self, _: web.Request) -> web.Response:
        resource = {
            "name": self._name,
            "kind": "ExternalMetricValueList",
            "namespaced": True,
            "verbs": ["get"],
        }
        told = {"groupVersion": f"{_GROUP}/v1beta1", "resources": [resource]}
        return web.json_response({"kind": "APIResourceList", "apiVersion": "v1", **told})

    async def _read(self, request: web.Request) -> web.Response:
        selector = request.query.get("labelSelector", "")
        self.asked.append(selector)
        wanted = dict(term.split("=") for term in selector.split(",") if term)
        items: list[dict[str, Any]] = []
        if request.match_info["name"] == self._name and wanted.items() <= self._labels.items():
            at = "2026-01-01T00:00:00Z"
            items = [
                {
                    "metricName": self._name,
                    "metricLabels": self._labels,
                    "timestamp": at,
                    "value": str(self.value),
                }
            ]
        told = {"kind": "ExternalMetricValueList", "apiVersion": f"{_GROUP}/v1beta1", "metadata": {}}
        return web.json_response({**told, "items": items})


@contextmanager
def autoscaler(server: ApiServer, directory: Path) -> Iterator[None]:
    """Run it for the block."""
    program = binary("kube-controller-manager")
    assert program is not None
    config = server.kubeconfig(directory / "autoscaler")
    with (directory / "autoscaler.log").open("wb") as log:
        process = subprocess.Popen(
            [
                str(program),
                f"--kubeconfig={config}",
                "--controllers=horizontal-pod-autoscaler-controller",
                "--horizontal-pod-autoscaler-sync-period=1s",
                "--leader-elect=false",
                "--secure-port=0",
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield
        assert process.poll() is None, (directory / "autoscaler.log").read_text()[-3000:]
    finally:
        process.kill()
        process.wait()
