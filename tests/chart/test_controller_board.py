"""A real Prometheus scrapes a controller at work: its board shows data, and faults make alerts active."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from sandlot_kube import clock, ends

from tests.chart.boards import check_queries, scraped, until_active, watching
from tests.chart.programs import add_node, command_of, items_of, running, until, variables_of
from tests.chart.prometheus import Target
from tests.chart.release import Release
from tests.chart.render import NAMESPACE, Resource

MERGE = "application/merge-patch+json"
TEMPLATE = {"image": "python:3.12"}
# What a Prometheus notices that scrapes nothing else.
OTHERS = ("SandlotNoGateway", "SandlotNoNodeAgent")


@pytest.mark.parametrize("release", [{"defaultPool": {"enabled": False}}], ids=["no pool"], indirect=True)
def test_its_board_shows_data_and_faults_are_noticed(
    release: Release, everything: list[Resource], directory: Path
) -> None:
    variables = variables_of(release, "controller", directory)
    target = Target("controller", NAMESPACE, int(variables["SANDLOT_HEALTH_PORT"]))
    played = Cluster(release)
    try:
        add_node(release.server, release.name)
        with (
            running(command_of(release, "controller"), log=directory / "log", variables=variables) as process,
            watching(target, everything, directory) as server,
        ):
            until(process, lambda: server.query("sandlot_controller_leader == 1"), bool)
            # A counter that begins with its first event shows Prometheus only the later ones.
            for number in (1, 2):
                start_and_end(played, process, number)
                scraped(server)
            until_active(server, *OTHERS)

            played.allow_no_pod()
            played.resize(3)
            until(process, lambda: server.query("rate(sandlot_controller_api_errors_total[5m])"), bool)
            check_queries(server, "controller")
            until_active(server, "SandlotPoolDoesNotStart", *OTHERS)

            (directory / "key").write_bytes(b"short")
            until_active(server, "SandlotPoolDoesNotStart", "SandlotReloadFails", *OTHERS)
    finally:
        played.clear()


def start_and_end(played: Cluster, process: subprocess.Popen[bytes], number: int) -> None:
    """The pool's pod of this number becomes ready, and so does that of a sandbox, which ends."""

    def wait_for_pods(count: int) -> None:
        until(process, played.pods, lambda found: len(found) == count)

    name = f"i-{number:016x}"
    played.resize(number)
    wait_for_pods(number)
    played.begin(name)
    wait_for_pods(number + 1)
    played.start_pods()
    played.end(name)
    wait_for_pods(number)


class Cluster:
    """Plays callers and kubelets of one pool."""

    def __init__(self, release: Release) -> None:
        self._release = release
        self._server = release.server
        self._ours = f"/apis/sandlot.dev/v1alpha1/namespaces/{release.sandboxes}"
        self._core = f"/api/v1/namespaces/{release.sandboxes}"

    def resize(self, size: int) -> None:
        spec = {"template": TEMPLATE, "size": size}
        if size == 1:
            self._make("sandboxpools", "SandboxPool", "pool", spec)
        else:
            path = f"{self._ours}/sandboxpools/pool"
            self._server.call("PATCH", path, {"spec": spec}, content_type=MERGE)

    def begin(self, name: str) -> None:
        self._make("sandboxes", "Sandbox", name, {"template": TEMPLATE})

    def end(self, name: str) -> None:
        ended = ends.status(ends.Ended("deleted", clock.text(time.time())))
        path = f"{self._ours}/sandboxes/{name}/status"
        self._server.call("PATCH", path, {"status": ended}, content_type=MERGE)

    def pods(self) -> list[dict[str, Any]]:
        found = items_of(self._release, "pods", group="/api/v1")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def start_pods(self) -> None:
        address = {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], **address}
        for pod in self.pods():
            path = f"{self._core}/pods/{pod['metadata']['name']}/status"
            self._server.call("PATCH", path, {"status": ready}, content_type=MERGE)

    def allow_no_pod(self) -> None:
        path = f"{self._core}/resourcequotas"
        hard = {"hard": {"pods": "0"}}
        self._server.call("POST", path, {"metadata": {"name": "none"}, "spec": hard})
        status = {"status": {**hard, "used": {"pods": "0"}}}
        self._server.call("PATCH", f"{path}/none/status", status, content_type=MERGE)

    def clear(self) -> None:
        for pod in items_of(self._release, "pods", group="/api/v1"):
            self._server.call(
                "DELETE", f"{self._core}/pods/{pod['metadata']['name']}", {"gracePeriodSeconds": 0}
            )
        self._server.call("DELETE", f"/api/v1/nodes/{self._release.name}")

    def _make(self, plural: str, kind: str, name: str, spec: dict[str, Any]) -> None:
        body = {"apiVersion": "sandlot.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        self._server.call("POST", f"{self._ours}/{plural}", body)
