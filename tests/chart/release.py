"""One installation of the chart on a real API server, which no controller and no kubelet watches."""

from __future__ import annotations

import urllib.error
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.chart.render import CHART, Resource, helm, render
from tests.kube.apiserver import ApiServer


def definition(kind: str, group: str = "monitoring.coreos.com") -> dict[str, Any]:
    """Of a resource of the Prometheus operator, or of another group: whatever is in it is taken."""
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            # The API server serves groups of k8s.io only with it.
            "annotations": {"api-approved.kubernetes.io": "unapproved, of a test"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [version],
        },
    }


@dataclass(frozen=True)
class Release:
    """One installation in a namespace of its own, which only admits pods at the level `restricted`."""

    server: ApiServer
    kubeconfig: Path
    name: str
    namespace: str
    values: dict[str, Any]

    @property
    def sandboxes(self) -> str:
        return f"{self.name}-sandboxes"

    def run(self, verb: str, *arguments: str, chart: Path = CHART) -> str:
        """Helm on this release; what it says."""
        source, values = ([str(chart)], self.values) if verb in ("install", "upgrade") else ([], None)
        where = ("-n", self.namespace, "--kubeconfig", str(self.kubeconfig))
        done = helm(verb, self.name, *source, *where, *arguments, values=values)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def fullname(self) -> str:
        return f"{self.name}-sandlot"

    def resources(self) -> list[Resource]:
        return render(self.values, release=self.name, namespace=self.namespace)

    def path(self, resource: Resource) -> str:
        """Where the API server has resources of this kind."""
        version = resource["apiVersion"]
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        (found,) = [
            each
            for each in self.server.call("GET", base)["resources"]
            if each["kind"] == resource["kind"] and "/" not in each["name"]
        ]
        inside = f"/namespaces/{resource['metadata']['namespace']}" if found["namespaced"] else ""
        return f"{base}{inside}/{found['name']}"

    def account(self, component: str, path: Path) -> Path:
        """A kubeconfig with what the pods of this component are: their service account and no more."""
        account = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{self.fullname}-{component}/token"
        token = self.server.call("POST", account, {"spec": {"audiences": None}})["status"]["token"]
        return self.server.kubeconfig(path, namespace=self.namespace, token=token)

    def get(self, path: str) -> dict[str, Any] | None:
        try:
            return self.server.call("GET", path)
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return None

    def secrets(self) -> dict[str, dict[str, str]]:
        """Their data, by name, without helm's own."""
        found = self.server.call("GET", f"/api/v1/namespaces/{self.namespace}/secrets")["items"]
        return {each["metadata"]["name"]: each["data"] for each in found if each["type"] == "Opaque"}

    def end_namespace(self) -> None:
        """What the namespace controller does, which no one runs here, when it has found the namespace empty."""
        path = f"/api/v1/namespaces/{self.sandboxes}"
        if (namespace := self.get(path)) is not None and namespace["metadata"].get("deletionTimestamp"):
            self.server.call("PUT", f"{path}/finalize", namespace | {"spec": {"finalizers": []}})


@pytest.fixture
def release(apiserver: ApiServer, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Release]:
    for kind in ("ServiceMonitor", "PodMonitor", "PrometheusRule"):
        apiserver.apply_crd(definition(kind))
    apiserver.apply_crd(definition("HTTPRoute", "gateway.networking.k8s.io"))
    namespace = apiserver.namespace("chart")
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    apiserver.call(
        "PATCH",
        f"/api/v1/namespaces/{namespace}",
        {"metadata": {"labels": labels}},
        content_type="application/merge-patch+json",
    )
    kubeconfig = apiserver.kubeconfig(tmp_path / "kubeconfig")
    made = Release(apiserver, kubeconfig, namespace, namespace, getattr(request, "param", {}))
    made.run("install")
    yield made
    # Cluster-wide things of one test must not be in the way of the next one.
    done = helm(
        "uninstall", made.name, "-n", namespace, "--kubeconfig", str(kubeconfig), "--ignore-not-found"
    )
    assert done.returncode == 0, done.stderr
    made.end_namespace()
