"""The chart against a real API server: installed, upgraded, taken away; its schemas, admission and authorisation."""

from __future__ import annotations

import base64
import urllib.error
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.chart.render import ALL, CHART, Resource, helm, of_kind, render
from tests.kube.apiserver import ApiServer

pytestmark = pytest.mark.apiserver

MONITORS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "servicemonitors.monitoring.coreos.com"},
    "spec": {
        "group": "monitoring.coreos.com",
        "scope": "Namespaced",
        "names": {"kind": "ServiceMonitor", "plural": "servicemonitors"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
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

    def run(self, verb: str, *arguments: str) -> str:
        """Helm on this release; what it says."""
        chart, values = ([], None) if verb == "uninstall" else ([str(CHART)], self.values)
        where = ("-n", self.namespace, "--kubeconfig", str(self.kubeconfig))
        done = helm(verb, self.name, *chart, *where, *arguments, values=values)
        assert done.returncode == 0, done.stderr
        return done.stdout

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
    apiserver.apply_crd(MONITORS)
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


def _resources(release: Release) -> list[Resource]:
    return render(release.values, release=release.name, namespace=release.namespace)


def _path(server: ApiServer, resource: Resource) -> str:
    """Where the API server has resources of this kind."""
    version = resource["apiVersion"]
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    (found,) = [
        each
        for each in server.call("GET", base)["resources"]
        if each["kind"] == resource["kind"] and "/" not in each["name"]
    ]
    inside = f"/namespaces/{resource['metadata']['namespace']}" if found["namespaced"] else ""
    return f"{base}{inside}/{found['name']}"


@pytest.mark.parametrize("release", [{}, ALL], ids=["defaults", "everything"], indirect=True)
def test_every_resource_is_what_the_api_server_s_schemas_say(release: Release) -> None:
    """Server-side apply refuses a field that the schema does not know; nothing is written."""
    for resource in _resources(release):
        body = {key: value for key, value in resource.items() if key != "source"}
        path = f"{_path(release.server, resource)}/{resource['metadata']['name']}"
        query = "?dryRun=All&force=true&fieldManager=test&fieldValidation=Strict"
        try:
            applied = release.server.call(
                "PATCH", path + query, body, content_type="application/apply-patch+yaml"
            )
        except urllib.error.HTTPError as error:
            pytest.fail(f"{resource['source']}: {error.read().decode()}")
        assert applied["metadata"]["name"] == resource["metadata"]["name"]


@pytest.mark.parametrize("release", [{}, ALL], ids=["defaults", "everything"], indirect=True)
def test_the_pods_are_admitted_where_only_restricted_ones_are(release: Release) -> None:
    path = f"/api/v1/namespaces/{release.namespace}/pods?dryRun=All"
    deployments = of_kind(_resources(release), "Deployment")
    assert len(deployments) == 2
    for deployment in deployments:
        template = deployment["spec"]["template"]
        pod = {"metadata": {"generateName": "try-", **template["metadata"]}, "spec": template["spec"]}
        assert release.server.call("POST", path, pod)["metadata"]["name"]
        spec = template["spec"] | {"hostNetwork": True}
        with pytest.raises(urllib.error.HTTPError) as refused:
            release.server.call("POST", path, pod | {"spec": spec})
        assert "violates PodSecurity" in refused.value.read().decode()


@pytest.mark.parametrize("release", [ALL], ids=["everything"], indirect=True)
def test_the_sandboxes_namespace_admits_the_privileged(release: Release) -> None:
    (daemons,) = of_kind(_resources(release), "DaemonSet")
    template = daemons["spec"]["template"]
    pod = {"metadata": {"generateName": "try-"}, "spec": template["spec"]}
    assert release.server.call("POST", f"/api/v1/namespaces/{release.sandboxes}/pods?dryRun=All", pod)


_IN_SANDBOXES = [
    ("", "pods", {"gateway": "get list watch", "controller": "get list watch create delete"}),
    ("", "pods/exec", {}),
    ("", "pods/log", {}),
    ("", "secrets", {}),
    ("", "configmaps", {}),
    ("", "serviceaccounts/token", {}),
    ("rbac.authorization.k8s.io", "rolebindings", {}),
    ("networking.k8s.io", "networkpolicies", {}),
    (
        "sandlot.dev",
        "sandboxes",
        {
            "gateway": "get list watch create patch delete",
            "controller": "get list watch delete",
        },
    ),
    (
        "sandlot.dev",
        "sandboxpools",
        {"gateway": "get list watch create patch delete", "controller": "get list watch"},
    ),
    ("sandlot.dev", "sandboxes/status", {"controller": "patch"}),
    ("sandlot.dev", "sandboxpools/status", {"controller": "patch"}),
]
_VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")


def test_who_may_do_what_by_the_api_server_s_own_word(release: Release) -> None:
    for group, resource, allowed in _IN_SANDBOXES:
        for component in ("gateway", "controller"):
            may = [v for v in _VERBS if _may(release, component, v, group, resource, release.sandboxes)]
            assert " ".join(sorted(may)) == " ".join(sorted(allowed.get(component, "").split())), (
                component,
                resource,
            )
    for component in ("gateway", "controller"):
        for where in (release.namespace, "default", "kube-system"):
            for verb in _VERBS:
                for group, resource in (("", "pods"), ("", "secrets"), ("sandlot.dev", "sandboxes")):
                    assert not _may(release, component, verb, group, resource, where)
    for verb in _VERBS:
        reads = verb in ("get", "list", "watch")
        assert _may(release, "controller", verb, "", "nodes", None) == reads
        assert not _may(release, "gateway", verb, "", "nodes", None)


def test_the_lease_and_no_other(release: Release) -> None:
    group, mine = "coordination.k8s.io", f"{_fullname(release)}-controller"
    for verb in ("get", "update", "patch"):
        assert _may(release, "controller", verb, group, "leases", release.namespace, name=mine)
        assert not _may(release, "controller", verb, group, "leases", release.namespace, name="another")
        assert not _may(release, "gateway", verb, group, "leases", release.namespace, name=mine)
    assert _may(release, "controller", "create", group, "leases", release.namespace)


def _may(
    release: Release,
    component: str,
    verb: str,
    group: str,
    resource: str,
    namespace: str | None,
    *,
    name: str = "",
) -> bool:
    plural, _, sub = resource.partition("/")
    account = f"{_fullname(release)}-{component}"
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{release.namespace}:{account}",
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": {
                "group": group,
                "resource": plural,
                "subresource": sub,
                "verb": verb,
                "name": name,
                **({"namespace": namespace} if namespace else {}),
            },
        },
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return release.server.call("POST", path, review)["status"]["allowed"]


def _fullname(release: Release) -> str:
    return f"{release.name}-sandlot"


def test_the_keys_outlive_upgrades_and_the_release_itself(release: Release) -> None:
    first = release.secrets()
    assert len(base64.b64decode(first[f"{_fullname(release)}-master"]["master"])) == 32
    assert len(base64.b64decode(first[f"{_fullname(release)}-api-key"]["api-key"])) == 40
    release.run("upgrade")
    assert release.secrets() == first
    release.run("uninstall")
    assert release.secrets() == first
    release.end_namespace()
    release.run("install")
    assert release.secrets() == first


def test_an_uninstall_leaves_the_secrets_and_the_definitions_only(release: Release) -> None:
    before = _resources(release)
    release.run("uninstall")
    release.end_namespace()
    left = [
        (each["kind"], each["metadata"]["name"])
        for each in before
        if release.get(f"{_path(release.server, each)}/{each['metadata']['name']}") is not None
    ]
    name = _fullname(release)
    assert sorted(left) == [("Secret", f"{name}-api-key"), ("Secret", f"{name}-master")]
    for plural in ("sandboxes", "sandboxpools"):
        assert release.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.sandlot.dev")


def test_a_runtime_class_of_somebody_else_is_used_and_left(apiserver: ApiServer, release: Release) -> None:
    """The first release has made it; a second one finds it and neither takes nor removes it."""
    namespace = apiserver.namespace("second")
    second = Release(apiserver, release.kubeconfig, namespace, namespace, {})
    second.run("install")
    second.run("upgrade")
    second.run("uninstall")
    second.end_namespace()
    runtime = release.get("/apis/node.k8s.io/v1/runtimeclasses/gvisor")
    assert runtime is not None
    assert runtime["metadata"]["annotations"]["meta.helm.sh/release-name"] == release.name
    release.run("upgrade")
    assert release.get("/apis/node.k8s.io/v1/runtimeclasses/gvisor") is not None


def test_the_api_server_s_own_address_is_no_internet(apiserver: ApiServer, release: Release) -> None:
    path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    slice_ = {
        "metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["203.0.113.9"]}],
        "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}],
    }
    apiserver.call("POST", path, slice_)
    try:
        opened = Release(
            apiserver,
            release.kubeconfig,
            release.name,
            release.namespace,
            {"networkPolicy": {"egress": {"internet": True}}},
        )
        opened.run("upgrade")
    finally:
        apiserver.call("DELETE", f"{path}/kubernetes")
    policy = release.get(
        f"/apis/networking.k8s.io/v1/namespaces/{release.sandboxes}/networkpolicies/egress-internet"
    )
    assert policy is not None
    (rule,) = policy["spec"]["egress"]
    assert "203.0.113.9/32" in rule["to"][0]["ipBlock"]["except"]


def test_the_notes_say_how_to_connect(release: Release) -> None:
    notes = release.run("upgrade")
    name = _fullname(release)
    assert f"http://{name}-gateway.{release.namespace}.svc.cluster.local:8642" in notes
    assert f"kubectl -n {release.namespace} port-forward service/{name}-gateway 8642" in notes
    assert f"get secret {name}-api-key -o jsonpath='{{.data.api-key}}'" in notes
    assert "from sandlot import Sandbox" in notes
