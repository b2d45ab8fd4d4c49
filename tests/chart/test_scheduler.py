"""The scheduler's option, with the real kube-scheduler: its configuration is taken, its account is enough, it packs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.chart.programs import add_node, items_of, running, until
from tests.chart.release import Release
from tests.chart.render import of_kind
from tests.kube.apiserver import binary
from tests.ports import free_port

pytestmark = pytest.mark.programs

SCHEDULER = {"scheduler": {"enabled": True, "image": "registry.example/kube-scheduler:v1"}}


@pytest.mark.parametrize("release", [SCHEDULER], ids=["scheduler"], indirect=True)
def test_the_scheduler_fills_one_node_before_the_next(release: Release, directory: Path) -> None:
    program = binary("kube-scheduler")
    if program is None:
        pytest.skip("needs kube-scheduler of the test cluster (`make cluster` builds it)")
    server = release.server
    name = f"{release.fullname}-scheduler"
    (config,) = of_kind(release.resources(), "ConfigMap")
    settings = yaml.safe_load(config["data"]["config.yaml"])
    kubeconfig = release.account("scheduler", directory / "account")
    settings["clientConnection"] = {"kubeconfig": str(kubeconfig)}
    (directory / "config.yaml").write_text(json.dumps(settings))
    # Without a cluster around it, it cannot be told who may ask it for its health.
    command = [
        str(program),
        f"--config={directory / 'config.yaml'}",
        f"--secure-port={free_port()}",
        "--bind-address=127.0.0.1",
    ]
    nodes = [f"{release.name}-{n}" for n in range(3)]
    try:
        for node in nodes:
            add_node(server, node)
        with running(command, log=directory / "log", variables={}) as scheduler:
            placed = []
            for n in range(6):
                _pod(release, f"i-{n:016x}", scheduler=name)
                path = f"/api/v1/namespaces/{release.sandboxes}/pods/i-{n:016x}"
                pod = until(
                    scheduler,
                    lambda path=path: server.call("GET", path),
                    lambda pod: "nodeName" in pod["spec"],
                )
                placed.append(pod["spec"]["nodeName"])
        assert len(set(placed)) == 1, placed
    finally:
        for pod in items_of(release, "pods", group="/api/v1"):
            path = f"/api/v1/namespaces/{release.sandboxes}/pods/{pod['metadata']['name']}"
            server.call("DELETE", path, {"gracePeriodSeconds": 0})
        for node in nodes:
            server.call("DELETE", f"/api/v1/nodes/{node}")


def _pod(release: Release, name: str, *, scheduler: str) -> None:
    labels = {"app.kubernetes.io/name": "sandlot", "app.kubernetes.io/component": "sandbox"}
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}
    pod = {
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "schedulerName": scheduler,
            "containers": [container],
            "automountServiceAccountToken": False,
        },
    }
    release.server.call("POST", f"/api/v1/namespaces/{release.sandboxes}/pods", pod)
