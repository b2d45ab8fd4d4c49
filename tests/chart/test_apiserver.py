"""The chart against a real API server: installed, upgraded, taken away; its schemas and admission."""

from __future__ import annotations

import base64
import subprocess
import urllib.error
from pathlib import Path

import pytest
import yaml

from tests.chart.release import Release
from tests.chart.render import ALL, CHART, ROOT, VERSION, of_kind
from tests.kube.apiserver import ApiServer

pytestmark = pytest.mark.programs


@pytest.mark.parametrize("release", [{}, ALL], ids=["defaults", "everything"], indirect=True)
def test_the_api_server_takes_what_is_installed(release: Release) -> None:
    """One test, since an installation takes seconds of CPU."""
    assert_resources_are_what_the_schemas_say(release)
    assert_pods_are_admitted_where_only_restricted_ones_are(release)
    if release.values == ALL:
        assert_the_sandboxes_namespace_admits_the_privileged(release)


def assert_resources_are_what_the_schemas_say(release: Release) -> None:
    """Server-side apply refuses a field that the schema does not know; nothing is written."""
    for resource in release.resources():
        body = {key: value for key, value in resource.items() if key != "source"}
        path = f"{release.path(resource)}/{resource['metadata']['name']}"
        query = "?dryRun=All&force=true&fieldManager=test&fieldValidation=Strict"
        try:
            applied = release.server.call(
                "PATCH", path + query, body, content_type="application/apply-patch+yaml"
            )
        except urllib.error.HTTPError as error:
            pytest.fail(f"{resource['source']}: {error.read().decode()}")
        assert applied["metadata"]["name"] == resource["metadata"]["name"]


def assert_pods_are_admitted_where_only_restricted_ones_are(release: Release) -> None:
    path = f"/api/v1/namespaces/{release.namespace}/pods?dryRun=All"
    deployments = of_kind(release.resources(), "Deployment")
    assert deployments
    for deployment in deployments:
        template = deployment["spec"]["template"]
        pod = {"metadata": {"generateName": "try-", **template["metadata"]}, "spec": template["spec"]}
        assert release.server.call("POST", path, pod)["metadata"]["name"]
        spec = template["spec"] | {"hostNetwork": True}
        with pytest.raises(urllib.error.HTTPError) as refused:
            release.server.call("POST", path, pod | {"spec": spec})
        assert "violates PodSecurity" in refused.value.read().decode()


def assert_the_sandboxes_namespace_admits_the_privileged(release: Release) -> None:
    daemons = of_kind(release.resources(), "DaemonSet")
    assert len(daemons) == 2, "installer of gVisor and node agent"
    for each in daemons:
        pod = {"metadata": {"generateName": "try-"}, "spec": each["spec"]["template"]["spec"]}
        assert release.server.call("POST", f"/api/v1/namespaces/{release.sandboxes}/pods?dryRun=All", pod)


def test_a_lease_that_a_controller_made_is_left_to_it(release: Release) -> None:
    """As in a release that was installed by a chart without one: helm would refuse the upgrade."""
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{release.namespace}/leases"
    mine = f"{release.fullname}-controller"
    release.run("uninstall")
    release.end_namespace()
    assert release.get(f"{leases}/{mine}") is None
    release.server.call("POST", leases, {"metadata": {"name": mine}, "spec": {"holderIdentity": "somebody"}})
    release.run("install")
    release.run("upgrade")
    held = release.get(f"{leases}/{mine}")
    assert held is not None
    assert held["spec"]["holderIdentity"] == "somebody"
    release.server.call("DELETE", f"{leases}/{mine}")


def test_the_keys_outlive_upgrades_and_the_release_itself(release: Release) -> None:
    first = release.secrets()
    assert len(base64.b64decode(first[f"{release.fullname}-master"]["master"])) == 32
    assert len(base64.b64decode(first[f"{release.fullname}-api-key"]["api-key"])) == 40
    release.run("upgrade")
    assert release.secrets() == first
    release.run("uninstall")
    assert release.secrets() == first
    release.end_namespace()
    release.run("install")
    assert release.secrets() == first


def test_a_rollback_over_a_replaced_master_key(release: Release) -> None:
    """Helm 4 stops. Forced, it brings the revision's key back, and leaves the one beside it (docs/upgrade.md)."""
    secret = f"{release.fullname}-master"
    path = f"/api/v1/namespaces/{release.namespace}/secrets/{secret}?fieldManager=kubectl-patch"
    old, new = release.secrets()[secret]["master"], base64.b64encode(b"n" * 32).decode()
    replaced = {"master": new, "master-current": new}

    def replace() -> None:
        release.server.call("PATCH", path, {"data": replaced}, content_type="application/merge-patch+json")

    replace()
    with pytest.raises(AssertionError, match=r"conflict with .*: \.data\.master"):
        release.run("rollback", "1")
    assert release.secrets()[secret] == replaced
    release.run("rollback", "1", "--force-conflicts")
    assert release.secrets()[secret] == {"master": old, "master-current": new}
    replace()
    release.run("upgrade")
    release.run("rollback", "4")  # the upgrade
    assert release.secrets()[secret] == replaced


def test_an_upgrade_from_the_commit_before_touches_no_sandbox(release: Release, tmp_path: Path) -> None:
    """Fields that cannot be changed, such as selectors, show here. The release is first taken back by one commit."""
    archive = subprocess.run(
        ["git", "archive", "HEAD~1", "charts/sandlot"], cwd=ROOT, capture_output=True, check=False
    )
    if archive.returncode:
        pytest.skip("needs the repository's history")
    subprocess.run(["tar", "-x", "-C", str(tmp_path)], input=archive.stdout, check=True)
    release.run("uninstall")
    release.end_namespace()
    release.run("install", chart=tmp_path / "charts/sandlot")
    base = f"/apis/sandlot.dev/v1alpha1/namespaces/{release.sandboxes}/sandboxes"
    kind = {"apiVersion": "sandlot.dev/v1alpha1", "kind": "Sandbox"}
    running = kind | {"metadata": {"name": "sbx-1"}, "spec": {"template": {"image": "python:3.12"}}}
    release.server.call("POST", base, running)
    pods = f"/api/v1/namespaces/{release.sandboxes}/pods"
    spec = {"containers": [{"name": "c", "image": "x"}], "automountServiceAccountToken": False}
    release.server.call("POST", pods, {"metadata": {"name": "i-1"}, "spec": spec})
    try:
        before = [_versions(release, path) for path in (base, pods)]
        assert [len(versions) for versions in before] == [1, 1]
        for crd in sorted((CHART / "crds").glob("*.yaml")):
            definition = yaml.safe_load(crd.read_text())
            name = definition["metadata"]["name"]
            path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}?fieldManager=kubectl&force=true"
            release.server.call("PATCH", path, definition, content_type="application/apply-patch+yaml")
        release.run("upgrade")
        assert [_versions(release, path) for path in (base, pods)] == before
    finally:
        release.server.call("DELETE", f"{pods}/i-1", {"gracePeriodSeconds": 0})
        release.server.call("DELETE", f"{base}/sbx-1")


def _versions(release: Release, path: str) -> dict[str, str]:
    """As etcd has them: a new schema may show an object that nobody has written with another default."""
    items = release.server.call("GET", path)["items"]
    return {item["metadata"]["uid"]: item["metadata"]["resourceVersion"] for item in items}


def test_an_uninstall_leaves_the_secrets_and_the_definitions_only(release: Release) -> None:
    before = release.resources()
    release.run("uninstall")
    release.end_namespace()
    left = [
        (each["kind"], each["metadata"]["name"])
        for each in before
        if release.get(f"{release.path(each)}/{each['metadata']['name']}") is not None
    ]
    name = release.fullname
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
    name = release.fullname
    assert f"http://{name}-gateway.{release.namespace}.svc.cluster.local:8642" in notes
    assert f"kubectl -n {release.namespace} port-forward service/{name}-gateway 8642" in notes
    assert f"get secret {name}-api-key -o jsonpath='{{.data.api-key}}'" in notes
    assert f"pip install 'sandlot[cli]=={VERSION}'" in notes
    assert f"sandlot run sandlot/python:{VERSION} -- 'echo hello'" in notes
