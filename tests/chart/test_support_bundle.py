"""`sandlot support-bundle` against a real API server: what is in it, what it lacks, and no secret in any place."""

from __future__ import annotations

import base64
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chart.played_kubelet import kubelet
from tests.chart.played_release import NODE, POOL, Played, let_gateway_list_deployments
from tests.chart.release import Release
from tests.chart.render import VERSION
from tests.chart.test_cluster_doctor import sandlot

# One for each place, so that a failure names the place. None has a form that gives it away.
PLANTED = {
    place: f"planted-{place}-value"
    for place in (
        "secret", "docker", "applied", "variable", "argument", "event", "sidecar-config", "pool-message", "log-known", "log-field"
    )
}  # fmt: skip
TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJwbGFudGVkIn0.cGxhbnRlZC1zaWduYXR1cmU"


def plant(release: Release) -> dict[str, str]:
    """Returns the logs that the kubelet has."""
    server = release.server

    def encoded(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    docker = {
        "auths": {
            "registry.example": {"auth": encoded(f"u:{PLANTED['docker']}"), "password": PLANTED["docker"]}
        }
    }
    secrets = f"/api/v1/namespaces/{release.sandboxes}/secrets"
    applied = {
        "kubectl.kubernetes.io/last-applied-configuration": json.dumps(
            {"data": {"x": encoded(PLANTED["applied"])}}
        )
    }
    data = {
        "plain": encoded(PLANTED["secret"]),
        "log": encoded(PLANTED["log-known"]),
        "applied": encoded(PLANTED["applied"]),
    }
    server.call("POST", secrets, {"metadata": {"name": "mine", "annotations": applied}, "data": data})
    body = {"metadata": {"name": "registry"}, "data": {".dockerconfigjson": encoded(json.dumps(docker))}}
    server.call("POST", secrets, body | {"type": "kubernetes.io/dockerconfigjson"})

    gateway = f"/apis/apps/v1/namespaces/{release.namespace}/deployments/{release.fullname}-gateway"
    found = server.call("GET", gateway)
    container = found["spec"]["template"]["spec"]["containers"][0]
    container["env"].append({"name": "MY_PASSWORD", "value": PLANTED["variable"]})
    container["env"].append({"name": "COPIED", "value": PLANTED["secret"]})
    container["args"] = ["--token", PLANTED["argument"], f"--password={PLANTED['argument']}"]
    server.call("PUT", gateway, found)

    pods = f"/api/v1/namespaces/{release.sandboxes}/pods"
    config = json.dumps({"instance_id": "i-2", "token": PLANTED["sidecar-config"]})
    labels = {"app.kubernetes.io/name": "sandlot", "app.kubernetes.io/component": "sandbox"}
    spec = {
        "nodeName": NODE,
        "automountServiceAccountToken": False,
        "containers": [
            {"name": "sidecar", "image": "s", "env": [{"name": "SANDLOT_SIDECAR_CONFIG", "value": config}]}
        ],
    }
    server.call("POST", pods, {"metadata": {"name": "i-2", "labels": labels}, "spec": spec})
    event = {
        "metadata": {"name": "e", "namespace": release.sandboxes},
        "involvedObject": {"kind": "Pod", "name": "i-2", "namespace": release.sandboxes},
        "message": f"pull from https://u:{PLANTED['event']}@registry.example failed",
        "type": "Normal",
    }
    server.call("POST", f"/api/v1/namespaces/{release.sandboxes}/events", event)
    Played(release).pool_says("Failing", ready=1, message=f"password: {PLANTED['pool-message']}")
    return {
        "i-1/sidecar": f'{{"at": 1, "event": "listening", "detail": "{PLANTED["log-known"]} {PLANTED["docker"]}"}}\nthe end of i-1\n',
        "i-2/sidecar": f"token={PLANTED['log-field']}\ngot {TOKEN} and {PLANTED['sidecar-config']}\nthe end of i-2\n",
    }


def members(path: Path) -> dict[str, str]:
    with tarfile.open(path) as tar:
        files = {member.name.partition("/")[2]: tar.extractfile(member) for member in tar}
        return {name: file.read().decode() for name, file in files.items() if file is not None}


@pytest.fixture
def planted(release: Release, tmp_path: Path) -> Iterator[Release]:
    played = Played(release)
    try:
        played.all_well()
        (tmp_path / "kubelet").mkdir()
        with kubelet(release.server, NODE, tmp_path / "kubelet", plant(release)):
            yield release
    finally:
        played.clear()


@pytest.mark.parametrize("release", [POOL], ids=["pool"], indirect=True)
def test_a_bundle_has_what_tells_of_the_installation_and_no_secret(planted: Release, tmp_path: Path) -> None:
    out = tmp_path / "bundle.tar.gz"
    where = ("--kubeconfig", str(planted.kubeconfig), "--namespace", planted.namespace)
    done = sandlot("support-bundle", *where, "--out", str(out), "--json")
    assert done.returncode == 0, done.stderr
    assert out.stat().st_mode & 0o777 == 0o600
    found = members(out)

    secret = {value for data in planted.secrets().values() for value in data.values()} | {
        *PLANTED.values(),
        TOKEN,
    }
    secret |= {base64.b64encode(value.encode()).decode().rstrip("=") for value in PLANTED.values()}
    secret.add(planted.server.token)
    for name, text in found.items():
        assert [value for value in secret if value in text] == [], name
    for data in planted.secrets().values():
        for value in data.values():
            plain = base64.b64decode(value)
            assert all(plain not in text.encode() for text in found.values())

    inside = f"resources/{planted.sandboxes}"
    assert {
        "README.txt",
        "doctor.txt",
        "doctor.json",
        "versions.json",
        "not-included.txt",
        "resources/cluster/nodes.json",
        "resources/cluster/customresourcedefinitions.json",
        f"resources/{planted.namespace}/deployments.json",
        f"resources/{planted.namespace}/roles.json",
        f"{inside}/events.json",
        f"{inside}/pods.json",
        f"{inside}/sandboxes.json",
        f"{inside}/sandboxpools.json",
        f"{inside}/secrets.json",
        f"logs/{planted.sandboxes}/i-1/sidecar.log",
    } <= set(found)
    assert "the end of i-1" in found[f"logs/{planted.sandboxes}/i-1/sidecar.log"]
    assert "the end of i-2" in found[f"logs/{planted.sandboxes}/i-2/sidecar.log"]
    assert "pool default: 1 of 2 ready" in found["doctor.txt"]
    names = {each["metadata"]["name"] for each in json.loads(found[f"{inside}/secrets.json"])}
    assert {"mine", "registry"} <= names
    deployments: list[dict[str, Any]] = json.loads(found[f"resources/{planted.namespace}/deployments.json"])
    variables = {
        one["name"]: one["value"]
        for each in deployments
        for one in each["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    assert variables["SANDLOT_NAMESPACE"] == planted.sandboxes
    assert variables["SANDLOT_KEY_FILE"] == "/etc/sandlot/master/master"
    versions = json.loads(found["versions.json"])
    assert versions["kubernetes"].startswith("v1.")
    assert versions["charts"] == [f"sandlot-{VERSION}"]


@pytest.mark.parametrize("release", [POOL], ids=["pool"], indirect=True)
def test_what_cannot_be_read_is_listed(planted: Release, tmp_path: Path) -> None:
    """As an account that may read Deployments and what the gateway may, but no log, Secret or node."""
    account = planted.account("gateway", tmp_path / "gateway")
    let_gateway_list_deployments(planted)

    out = tmp_path / "bundle.tar.gz"
    where = ("--kubeconfig", str(account), "--namespace", planted.namespace)
    done = sandlot("support-bundle", *where, "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(out)
    assert "files are not included; not-included.txt says why" in done.stderr
    found = members(out)
    lacking = found["not-included.txt"]
    assert "resources/cluster/nodes.json: 403: nodes is forbidden" in lacking
    assert f"logs/{planted.sandboxes}/i-1/sidecar.log: 403: " in lacking
    assert f"resources/{planted.sandboxes}/pods.json" in found
    assert "could not check  " in found["doctor.txt"]
    for text in found.values():  # no known value without the right to read Secrets, but these places tell
        assert PLANTED["sidecar-config"] not in text
        assert PLANTED["variable"] not in text
        assert PLANTED["argument"] not in text


@pytest.mark.parametrize("release", [POOL], ids=["pool"], indirect=True)
def test_no_file_is_overwritten(planted: Release, tmp_path: Path) -> None:
    existing = tmp_path / "existing"
    existing.write_text("mine")
    where = ("--kubeconfig", str(planted.kubeconfig), "--namespace", planted.namespace)
    refused = sandlot("support-bundle", *where, "--out", str(existing))
    assert refused.returncode == 1
    assert "exist" in refused.stderr.lower()
    assert existing.read_text() == "mine"
