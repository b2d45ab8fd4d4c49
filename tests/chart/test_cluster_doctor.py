"""`sandlot doctor --cluster` with kubectl against a real API server: the chart's own objects, broken one at a time."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sandlot.cli.cluster import rights

from tests.chart.played_release import MERGE, NODE, POOL, Played, let_gateway_list_deployments
from tests.chart.release import Release
from tests.chart.render import ALL, NAMESPACE, SANDBOXES, Resource, one, render
from tests.complaints import WARNINGS_SHOWN, assert_no_complaints
from tests.kube.apiserver import binary

Checks = dict[str, dict[str, str]]


def sandlot(*words: str, kubectl: bool = True, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command line, with the test cluster's kubectl before all others, or without any."""
    program = binary("kubectl")
    if program is None:
        pytest.skip("needs kubectl of the test cluster (`make cluster` builds it)")
    path = f"{program.parent}:{os.environ['PATH']}" if kubectl else "/nowhere"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SANDLOT_")}
    done = subprocess.run(
        [sys.executable, "-m", "sandlot", *words],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={**kept, "PATH": path, **WARNINGS_SHOWN, **variables},
    )
    assert_no_complaints(done.stderr)
    return done


@pytest.fixture
def played(release: Release) -> Iterator[Played]:
    made = Played(release)
    try:
        made.all_well()
        yield made
    finally:
        made.clear()


def examine(release: Release, kubeconfig: Path | None = None, *, code: int) -> Checks:
    """The findings that are not ok, by name."""
    where = ("--kubeconfig", str(kubeconfig or release.kubeconfig), "--namespace", release.namespace)
    done = sandlot("doctor", "--cluster", *where, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    found = json.loads(done.stdout)["checks"]
    assert len(found) > 20
    return {each["name"]: each for each in found if each["state"] != "ok"}


# No kubelet runs here, so no log can be read, and no pod be connected to.
BLIND = {
    "webhooks of sidecars",
    "gateway gateway-1",
    "controller controller-1",
    "clocks of gateways and controllers",
}


def deleted(base: str, plural: str, name: str, namespace: str = "") -> Callable[[Release], object]:
    inside = f"/namespaces/{namespace}" if namespace else ""

    def apply(release: Release) -> None:
        release.server.call("DELETE", (base + inside + f"/{plural}/{name}").format(r=release))

    return apply


def enforces(level: str) -> Callable[[Release], object]:
    def apply(release: Release) -> None:
        labels = {"pod-security.kubernetes.io/enforce": level}
        path = f"/api/v1/namespaces/{release.sandboxes}"
        release.server.call("PATCH", path, {"metadata": {"labels": labels}}, content_type=MERGE)

    return apply


def full_quota(release: Release) -> None:
    path = f"/api/v1/namespaces/{release.sandboxes}/resourcequotas"
    hard = {"pods": "1"}
    release.server.call("POST", path, {"metadata": {"name": "few"}, "spec": {"hard": hard}})
    status = {"hard": hard, "used": {"pods": "1"}}
    release.server.call("PATCH", f"{path}/few/status", {"status": status}, content_type=MERGE)


def missing_class(release: Release) -> None:
    path = f"/apis/sandlot.dev/v1alpha1/namespaces/{release.sandboxes}/sandboxpools/default"
    release.server.call("PATCH", path, {"spec": {"template": {"runtimeClass": "kata"}}}, content_type=MERGE)
    status = {"status": {"observedGeneration": 2}}
    release.server.call("PATCH", f"{path}/status", status, content_type=MERGE)


RBAC, NETWORK = "/apis/rbac.authorization.k8s.io/v1", "/apis/networking.k8s.io/v1"
BROKEN: list[tuple[Callable[[Release], object], str, str]] = [
    (enforces("baseline"), "namespace {r.sandboxes}", "level is baseline"),
    (missing_class, "runtime class kata", "named by pool default"),
    (deleted("/api/v1", "secrets", "{r.fullname}-master", "{r.namespace}"), "secret {r.namespace}/{r.fullname}-master", "does not exist"),
    (deleted(RBAC, "rolebindings", "{r.fullname}-gateway", "{r.sandboxes}"), "rights of the gateway", "patch sandboxes/status in {r.sandboxes}"),
    (deleted(NETWORK, "networkpolicies", "deny-all", "{r.sandboxes}"), "network policies of {r.sandboxes}", "none denies all"),
    (deleted("/api/v1", "services", "sandboxes", "{r.sandboxes}"), "service {r.sandboxes}/sandboxes", "does not exist"),
    (lambda release: Played(release).pool_says("Failing", ready=1, message="image_pull: not found"), "pool default", "1 of 2 ready"),
    (lambda release: Played(release).pod("i-9", waits=("ImagePullBackOff", "denied")), "pods of {r.sandboxes}", "ImagePullBackOff: python:3.12: denied"),
    (full_quota, "quota {r.sandboxes}/few", "pods: 1 of 1 used"),
    (lambda release: Played(release).renew(NODE, "kube-node-lease", at=time.time() - 900), "clock of node " + NODE, "15 min behind"),
]  # fmt: skip


@pytest.mark.parametrize("release", [POOL | {"sandboxes": {"dnsNames": True}}], ids=["names"], indirect=True)
def test_each_broken_thing_is_told_beside_those_before(played: Played) -> None:
    """One installation, in which more and more is broken: all that is told is what was broken, and how."""
    release = played.release
    blind = examine(release, code=0)
    assert set(blind) == BLIND
    assert (
        "its metrics cannot be read: no connection: kubectl failed: " in blind["gateway gateway-1"]["detail"]
    )
    told = set(BLIND)
    for apply, name, detail in BROKEN:
        apply(release)
        found = examine(release, code=1)
        told.add(name.format(r=release))
        assert set(found) == told
        assert found[name.format(r=release)]["state"] == "problem"
        assert detail.format(r=release) in found[name.format(r=release)]["detail"]
        assert found[name.format(r=release)]["advice"]


@pytest.mark.parametrize("release", [POOL], ids=["pool"], indirect=True)
def test_the_text_has_what_was_checked_and_no_secret(played: Played) -> None:
    release = played.release
    played.request(cpu="7")
    done = sandlot("doctor", "--cluster", "--kubeconfig", str(release.kubeconfig), "--context", "test")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"release {release.name}: gateway and controller in {release.namespace}")
    assert f"ok  secret {release.namespace}/{release.fullname}-master: it exists" in lines
    assert "ok  kubectl: v1." in done.stdout
    # Of the node's 8 cores 7 are another's pod's, and the rest is not all free.
    used = re.search(
        r"pods request 7\.\d of their 8\.0 cores and \d\.\d of 32\.0 GiB, and are 4 of at", done.stdout
    )
    assert used, done.stdout
    room = re.search(r"room for pool default: (\d) more pods fit, which request 0\.11 cores", done.stdout)
    assert room, done.stdout
    assert re.search(r"1 agree with the API server's within \d s; played-worker is furthest", done.stdout)
    assert "could not check  webhooks of sidecars: " in done.stdout
    for data in release.secrets().values():
        for value in data.values():
            assert value not in done.stdout
            assert base64.b64decode(value).decode(errors="replace") not in done.stdout


@pytest.mark.parametrize("release", [POOL], ids=["pool"], indirect=True)
def test_without_rights_it_says_what_it_could_not_check(played: Played, tmp_path: Path) -> None:
    """As the gateway's account, which may read pods and pools of the sandboxes and no Deployment."""
    release = played.release
    gateway = release.account("gateway", tmp_path / "gateway")
    done = sandlot("doctor", "--cluster", "--kubeconfig", str(gateway), "--namespace", release.namespace)
    assert done.returncode == 2
    assert "the Deployments cannot be listed: 403: deployments.apps is forbidden" in done.stderr

    let_gateway_list_deployments(release)
    found = examine(release, gateway, code=0)
    assert {each["state"] for each in found.values()} == {"unchecked"}
    assert {"your rights", "secrets", "definitions", "rights of the gateway"} <= set(found)
    assert f"list secrets of namespace {release.namespace}" in found["your rights"]["detail"]
    assert "pool default" not in found, "it may read pools"


def test_a_cluster_that_cannot_be_reached_is_told_in_a_line(release: Release, tmp_path: Path) -> None:
    def stderr(*words: str, kubectl: bool = True) -> str:
        done = sandlot("doctor", "--cluster", *words, kubectl=kubectl)
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        return line

    mine = ("--kubeconfig", str(release.kubeconfig))
    assert "kubectl is not on PATH" in stderr(*mine, kubectl=False)
    assert 'context "other" does not exist' in stderr(*mine, "--context", "other")
    assert "namespace elsewhere has no Deployment of a release of Sandlot" in stderr(
        *mine, "--namespace", "elsewhere"
    )
    assert "no Deployment of the release other" in stderr(*mine, "--release", "other")
    stale = release.server.kubeconfig(tmp_path / "stale", token="old")
    assert "does not accept kubectl's credentials" in stderr("--kubeconfig", str(stale))
    config = json.loads(stale.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    stale.write_text(json.dumps(config))
    assert "connection refused" in stderr("--kubeconfig", str(stale))


def test_options_of_a_cluster_need_the_cluster() -> None:
    done = sandlot("doctor", "--namespace", "sandlot")
    assert done.returncode == 2
    assert "add --cluster" in done.stderr


@pytest.mark.parametrize("component", ["gateway", "controller"])
def test_it_asks_for_the_rights_that_the_chart_gives(component: str) -> None:
    """Each rule of the chart is a question, and no other: else a healthy release would be called broken, or the reverse."""
    rendered = render(ALL)
    names = [
        ("Role", f"sandlot-{component}"),
        ("Role", f"sandlot-{component}-lease"),
        ("Role", f"sandlot-{component}-peers"),
        ("ClusterRole", f"sandlot-{component}"),
    ]
    places = {SANDBOXES: "sandboxes", NAMESPACE: "release", None: "cluster"}
    given = set[tuple[Any, ...]]()
    for kind, name in names:
        if not any(each["kind"] == kind and each["metadata"]["name"] == name for each in rendered):
            continue
        role: Resource = one(rendered, kind, name)
        place = places[role["metadata"].get("namespace")]
        for rule in role["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for named in rule.get("resourceNames", [""]):
                        given |= {(group, resource, verb, place, named) for verb in rule["verbs"]}
    named = (rights.lease("sandlot-controller"), rights.webhooks("sandlot-gateway-webhooks"))
    needs = rights.GATEWAY if component == "gateway" else (*rights.CONTROLLER, *named)
    assert {
        (each.group, each.resource, verb, each.place, each.name) for each in needs for verb in each.verbs
    } == given
