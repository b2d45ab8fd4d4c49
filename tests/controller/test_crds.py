"""Both resources through `kubectl apply` and the API server's own schema: defaults, columns, and clear refusals."""

from __future__ import annotations

import json
import subprocess
import urllib.error
from pathlib import Path
from typing import Any

import pytest
from sandlot_kube import ends
from sandlot_kube.errors import KubeError

from tests.kube.apiserver import ApiServer, binary

pytestmark = pytest.mark.programs

API = "sandlot.dev/v1alpha1"
PLURALS = {"Sandbox": "sandboxes", "SandboxPool": "sandboxpools"}


@pytest.fixture
def namespace(resources: ApiServer) -> str:
    return resources.namespace("crds")


def create(
    server: ApiServer, namespace: str, kind: str, spec: dict[str, Any], name: str = "a"
) -> dict[str, Any]:
    body = {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}
    return server.call("POST", f"/apis/{API}/namespaces/{namespace}/{PLURALS[kind]}", body)


def patch(
    server: ApiServer, namespace: str, kind: str, spec: dict[str, Any], name: str = "a"
) -> dict[str, Any]:
    path = f"/apis/{API}/namespaces/{namespace}/{PLURALS[kind]}/{name}"
    return server.call("PATCH", path, {"spec": spec}, content_type="application/merge-patch+json")


def tell(server: ApiServer, namespace: str, status: dict[str, Any], name: str = "a") -> dict[str, Any]:
    path = f"/apis/{API}/namespaces/{namespace}/sandboxes/{name}/status"
    return server.call("PATCH", path, {"status": status}, content_type="application/merge-patch+json")


def refusal(error: urllib.error.HTTPError) -> str:
    assert error.code == 422, error.code
    return json.loads(error.read())["message"]


def test_what_is_left_out_has_a_default(resources: ApiServer, namespace: str) -> None:
    spec = create(resources, namespace, "Sandbox", {"template": {"image": "python:3.12"}})["spec"]
    assert spec["tenant"] == "default"
    assert spec["template"] == {
        "image": "python:3.12",
        "cpu": 1,
        "memory": 1 << 30,
        "disk": 5 << 30,
        "pids": 1024,
        "gpuCount": 0,
    }


@pytest.mark.parametrize(
    ("kind", "spec", "message"),
    [
        ("Sandbox", {}, "spec.template: Required value"),
        ("Sandbox", {"template": {}}, "spec.template.image: Required value"),
        ("Sandbox", {"template": {"image": ""}}, "spec.template.image"),
        ("Sandbox", {"template": {"image": "a b"}}, "spec.template.image"),
        ("Sandbox", {"template": {"image": "x", "cpu": 0}}, "spec.template.cpu"),
        ("Sandbox", {"template": {"image": "x", "memory": 1}}, "spec.template.memory"),
        ("Sandbox", {"template": {"image": "x", "memory": "1Gi"}}, "spec.template.memory"),
        ("Sandbox", {"template": {"image": "x", "pids": 1}}, "spec.template.pids"),
        ("Sandbox", {"template": {"image": "x", "gpuType": "A100"}}, "gpuType needs a gpuCount above 0"),
        ("Sandbox", {"template": {"image": "x"}, "podName": "Not A Name"}, "spec.podName"),
        ("Sandbox", {"template": {"image": "x"}, "state": "Ended"}, "spec.state: Unsupported value"),
        ("SandboxPool", {"template": {"image": "x"}}, "either size, or minSize and maxSize, must be set"),
        (
            "SandboxPool",
            {"template": {"image": "x"}, "size": 1, "minSize": 1, "maxSize": 2},
            "either size, or minSize and maxSize, must be set",
        ),
        ("SandboxPool", {"template": {"image": "x"}, "minSize": 1}, "minSize and maxSize go together"),
        (
            "SandboxPool",
            {"template": {"image": "x"}, "minSize": 3, "maxSize": 2},
            "minSize must not be above maxSize",
        ),
        ("SandboxPool", {"template": {"image": "x"}, "size": -1}, "spec.size"),
        ("SandboxPool", {"template": {"image": ""}, "size": 1}, "spec.template.image"),
        ("SandboxPool", {"size": 1}, "spec.template: Required value"),
    ],
)
def test_what_is_wrong_is_refused_by_name(
    resources: ApiServer, namespace: str, kind: str, spec: dict[str, Any], message: str
) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        create(resources, namespace, kind, spec)
    assert message in refusal(caught.value)


def test_a_pool_may_have_no_image(resources: ApiServer, namespace: str) -> None:
    spec = create(resources, namespace, "SandboxPool", {"template": {"cpu": 2}, "size": 1})["spec"]
    assert spec["template"] == {"cpu": 2, "memory": 1 << 30, "disk": 5 << 30, "pids": 1024, "gpuCount": 0}


def test_a_pool_s_reuse_has_the_defaults_of_the_fields_that_it_leaves_out(
    resources: ApiServer, namespace: str
) -> None:
    pool = {"template": {"image": "x"}, "size": 1}
    for name, said, stored in (
        ("a", {}, {"policy": "tenant", "maxUses": 100, "maxAge": 3600}),
        ("b", {"maxUses": 7}, {"policy": "tenant", "maxUses": 7, "maxAge": 3600}),
        ("c", {"policy": "never"}, {"policy": "never", "maxUses": 100, "maxAge": 3600}),
    ):
        made = create(resources, namespace, "SandboxPool", {**pool, "reuse": said}, name)
        assert made["spec"]["reuse"] == stored


def test_a_claim_cannot_be_changed_nor_an_end_taken_back(resources: ApiServer, namespace: str) -> None:
    create(resources, namespace, "Sandbox", {"template": {"image": "x"}})
    patch(resources, namespace, "Sandbox", {"template": {"image": "y"}})
    patch(resources, namespace, "Sandbox", {"podName": "i-1"})
    for change, message in (
        ({"template": {"image": "z"}}, "template cannot change once podName is set"),
        ({"podName": "i-2"}, "podName cannot change once it is set"),
        ({"podName": None}, "podName cannot change once it is set"),
    ):
        with pytest.raises(urllib.error.HTTPError) as caught:
            patch(resources, namespace, "Sandbox", change)
        assert message in refusal(caught.value)
    first = ends.status(ends.Ended("deleted", "2026-01-01T00:00:00Z"))
    assert tell(resources, namespace, first)["status"]["verdict"] == "deleted"
    tell(resources, namespace, first)
    for change in ({"phase": "Running"}, {"phase": None}, {"verdict": "oom"}, {"verdict": None}):
        with pytest.raises(urllib.error.HTTPError) as caught:
            tell(resources, namespace, change)
        message = refusal(caught.value)
        assert ends.was_first(KubeError(status=422, message=message)), message


def test_the_ends_of_one_minute_are_removed_together(resources: ApiServer, namespace: str) -> None:
    for name, at in (("a", "12:00:01"), ("b", "12:00:59"), ("c", "12:01:00")):
        create(resources, namespace, "Sandbox", {"template": {"image": "x"}}, name)
        tell(resources, namespace, ends.status(ends.Ended("deleted", f"2026-01-01T{at}Z")), name)
    create(resources, namespace, "Sandbox", {"template": {"image": "x"}}, "d")
    collection = f"/apis/{API}/namespaces/{namespace}/sandboxes"
    resources.call("DELETE", f"{collection}?fieldSelector=status.endedIn%3D2026-01-01T12:00Z")
    assert [item["metadata"]["name"] for item in resources.call("GET", collection)["items"]] == ["c", "d"]


def test_kubectl_applies_and_shows_both(resources: ApiServer, namespace: str, tmp_path: Path) -> None:
    program = binary("kubectl")
    if program is None:
        pytest.skip("needs kubectl of the test cluster (`make cluster` builds it)")
    config = resources.kubeconfig(tmp_path / "config", namespace=namespace)

    def kubectl(*arguments: str, given: str = "") -> str:
        done = subprocess.run(
            [str(program), f"--kubeconfig={config}", f"--cache-dir={tmp_path / 'cache'}", *arguments],
            input=given,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    pool = {"template": {"image": "x"}, "size": 2}
    for kind, spec in (("Sandbox", {"template": {"image": "x"}}), ("SandboxPool", pool)):
        body = {"apiVersion": API, "kind": kind, "metadata": {"name": "a"}, "spec": spec}
        assert "created" in kubectl("apply", "-f", "-", given=json.dumps(body))
        assert "unchanged" in kubectl("apply", "-f", "-", given=json.dumps(body))
    collection = f"/apis/{API}/namespaces/{namespace}"
    ended = {"phase": "Ended", "verdict": "oom", "nodeName": "n1"}
    counts = {"size": 2, "ready": 1, "starting": 1, "claimed": 5, "message": "image_pull: no such image"}
    for path, status in (("sandboxes/a", ended), ("sandboxpools/a", counts)):
        body = {"status": status}
        resources.call(
            "PATCH", f"{collection}/{path}/status", body, content_type="application/merge-patch+json"
        )
    owned = {"template": {"image": "x"}, "podName": "i-1", "nodeName": "n2", "state": "Running"}
    create(resources, namespace, "Sandbox", owned, "b")
    create(resources, namespace, "Sandbox", {"template": {"image": "x"}}, "c")
    promised = {"sandboxId": "sb-1", "state": "Pending", "waitingUntil": "2026-01-01T00:00:00Z"}
    create(resources, namespace, "Sandbox", {"template": {"image": "x"}, **promised}, "d")
    header, *rows = kubectl("get", "sbx").splitlines()
    assert header.split() == ["NAME", "PHASE", "VERDICT", "NODE", "AGE"]
    assert [row.split()[:-1] for row in rows] == [
        ["a", "Ended", "oom", "n1"],
        ["b", "Running", "n2"],
        ["c", "Pending"],
        ["d", "Pending"],
    ]
    assert " i-1 " in kubectl("get", "sbx", "b", "-o", "wide")
    header, row = kubectl("get", "sbxp").splitlines()
    assert header.split() == ["NAME", "SIZE", "READY", "STARTING", "CLAIMED", "MESSAGE", "AGE"]
    assert row.split()[:5] == ["a", "2", "1", "1", "5"]
    assert "Why the sandbox ended" in kubectl("explain", "sandbox.status.verdict")
