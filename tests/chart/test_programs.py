"""The programs with the environment and the service account that the chart gives them: enough, and they come up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sandlot_kube import ends

from tests.chart.programs import add_node, ask, command_of, items_of, running, until, variables_of
from tests.chart.release import Release
from tests.chart.render import VERSION

pytestmark = pytest.mark.programs

# Its pods would be among those that a test makes.
NO_POOL = {"defaultPool": {"enabled": False}}


def pods_wanted(release: Release) -> list[dict[str, Any]]:
    """Without the promises, which lapse at a time."""
    return [each for each in items_of(release, "sandboxes") if "waitingUntil" not in each["spec"]]


@pytest.mark.parametrize("release", [NO_POOL], ids=["no pool"], indirect=True)
def test_the_gateway_comes_up_and_may_do_all_it_wants(release: Release, directory: Path) -> None:
    variables = variables_of(release, "gateway", directory)
    url = f"http://127.0.0.1:{variables['SANDLOT_PORT']}"
    with running(command_of(release, "gateway"), log=directory / "log", variables=variables) as gateway:
        until(gateway, lambda: ask("GET", f"{url}/readyz")[0], lambda status: status == 200)
        pool = f"{url}/api/v1/pools/made"
        for size in (2, 1):
            status, answer = ask("PUT", pool, {"image": "python:3.12", "size": size})
            assert status == 200, answer
        (made,) = items_of(release, "sandboxpools")
        assert made["spec"]["size"] == 1
        assert ask("DELETE", pool)[0] == 200
        status, answer = ask("POST", f"{url}/api/v1/sandbox", {"docker_image": "python:3.12"})
        assert status in (200, 201), answer
        # Beside the promise that every gateway sees, there is the one that a pod is made for.
        (wanted,) = until(gateway, lambda: pods_wanted(release), lambda found: len(found) == 1)
        assert wanted["spec"]["template"]["image"] == "python:3.12"
        log = (directory / "log").read_text()
        assert "forbidden" not in log.lower()


@pytest.mark.parametrize("release", [NO_POOL], ids=["no pool"], indirect=True)
def test_the_controller_makes_and_ends_pods_with_what_it_was_given(release: Release, directory: Path) -> None:
    variables = variables_of(release, "controller", directory)
    server, url = release.server, f"http://127.0.0.1:{variables['SANDLOT_HEALTH_PORT']}"
    base = f"/apis/sandlot.dev/v1alpha1/namespaces/{release.sandboxes}"
    try:
        add_node(server, release.name)
        with running(
            command_of(release, "controller"), log=directory / "log", variables=variables
        ) as controller:
            until(controller, lambda: _metric(url, "sandlot_controller_leader"), lambda found: found == 1)
            assert ask("GET", f"{url}/healthz")[0] == ask("GET", f"{url}/readyz")[0] == 200
            spec = {"template": {"image": "python:3.12"}}
            pool = {"metadata": {"name": "two"}, "spec": spec | {"size": 2}}
            server.call("POST", f"{base}/sandboxpools", _named(pool, "SandboxPool"))
            pods = until(controller, lambda: _pods(release), lambda found: len(found) == 2)
            for pod in pods:
                _as_the_chart_says(pod["spec"], release)
            path = f"{base}/sandboxpools/two"
            until(
                controller,
                lambda: server.call("GET", path).get("status", {}),
                lambda found: found.get("starting") == 2,
            )
            cold = {"metadata": {"name": "i-00000000000000aa"}, "spec": spec}
            server.call("POST", f"{base}/sandboxes", _named(cold, "Sandbox"))
            path = f"{base}/sandboxes/i-00000000000000aa"
            until(controller, lambda: _pods(release), lambda found: len(found) == 3)
            ended = {"status": ends.status(ends.Ended("deleted", "2026-01-01T00:00:00Z"))}
            server.call("PATCH", f"{path}/status", ended, content_type="application/merge-patch+json")
            # Its hour is long over: pod and resource go.
            until(controller, lambda: items_of(release, "sandboxes"), lambda found: not found)
            until(controller, lambda: _pods(release), lambda found: len(found) == 2)
            lease = f"/apis/coordination.k8s.io/v1/namespaces/{release.namespace}/leases/{release.fullname}-controller"
            assert release.get(lease) is not None
            assert "forbidden" not in (directory / "log").read_text().lower()
    finally:
        for pod in items_of(release, "pods", group="/api/v1"):
            path = f"/api/v1/namespaces/{release.sandboxes}/pods/{pod['metadata']['name']}"
            server.call("DELETE", path, {"gracePeriodSeconds": 0})
        server.call("DELETE", f"/api/v1/nodes/{release.name}")


def _named(resource: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"apiVersion": "sandlot.dev/v1alpha1", "kind": kind} | resource


def _pods(release: Release) -> list[dict[str, Any]]:
    """Those that nobody has begun to take away."""
    pods = items_of(release, "pods", group="/api/v1")
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def _as_the_chart_says(spec: dict[str, Any], release: Release) -> None:
    assert spec["runtimeClassName"] == "gvisor"
    assert spec["priorityClassName"] == f"{release.fullname}-sandbox"
    assert spec["automountServiceAccountToken"] is False
    (sidecar,) = [each for each in spec["containers"] if each["name"] == "sidecar"]
    assert sidecar["image"] == f"sandlot/sidecar:{VERSION}"
    (config,) = [each["value"] for each in sidecar["env"] if each["name"] == "SANDLOT_SIDECAR_CONFIG"]
    gateway = f"http://{release.fullname}-gateway-webhooks.{release.namespace}.svc.cluster.local.:8641"
    assert json.loads(config)["webhook"] == f"{gateway}/internal/sidecar"
    service = f"/api/v1/namespaces/{release.namespace}/services/{release.fullname}-gateway-webhooks"
    address = release.server.call("GET", service)["spec"]["clusterIP"]
    assert json.loads(config)["webhook_address"] == address


def _metric(url: str, name: str) -> float | None:
    status, text = ask("GET", f"{url}/metrics")
    values = (
        [line.split()[-1] for line in text.splitlines() if line.startswith(f"{name} ")]
        if status == 200
        else []
    )
    return float(values[0]) if values else None
