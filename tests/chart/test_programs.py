"""The programs with the environment and the service account that the chart gives them: enough, and they come up."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from tests.chart.release import Release
from tests.chart.render import environment, of_kind, one
from tests.kube.apiserver import ApiServer, binary

pytestmark = pytest.mark.apiserver

T = TypeVar("T")

API_KEY = "key-of-the-test"
SCHEDULER = {"scheduler": {"enabled": True, "image": "registry.example/kube-scheduler:v1"}}


@pytest.fixture
def directory() -> Iterator[Path]:
    """With a short path, since the gateway's sockets are in it."""
    with tempfile.TemporaryDirectory(prefix="sandlot-") as path:
        yield Path(path)


@contextmanager
def _program(
    command: list[str], *, log: Path, variables: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs until the block ends; its output is shown when the block fails."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SANDLOT_")}
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, env=clean | variables, stdout=out, stderr=out, start_new_session=True
        )
    try:
        yield process
        assert process.poll() is None, log.read_text()
    except BaseException:
        print(log.read_text()[-8000:])
        raise
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _variables(release: Release, component: str, directory: Path) -> dict[str, str]:
    """Those of the Deployment, with its files and ports moved to where a test may have them."""
    deployment = one(release.resources(), "Deployment", f"{release.fullname}-{component}")
    given = environment(deployment)
    (directory / "key").write_bytes(b"k" * 32)
    (directory / "keys").write_text(f"{API_KEY}\n")
    moved = {
        "SANDLOT_KEY_FILE": str(directory / "key"),
        "SANDLOT_API_KEYS_FILE": str(directory / "keys"),
        "SANDLOT_STATE_DIR": str(directory),
        "SANDLOT_HOST": "127.0.0.1",
        "SANDLOT_PORT": str(_free_port()),
        "SANDLOT_WAIT_SECONDS": "0",
    }
    kubeconfig = release.account(component, directory / "account")
    variables = given | {name: value for name, value in moved.items() if name in given}
    if component == "controller":
        variables |= {"SANDLOT_HEALTH_HOST": "127.0.0.1", "SANDLOT_HEALTH_PORT": str(_free_port())}
    return variables | {"KUBECONFIG": str(kubeconfig)}


def _command(release: Release, component: str) -> list[str]:
    deployment = one(release.resources(), "Deployment", f"{release.fullname}-{component}")
    program, *arguments = deployment["spec"]["template"]["spec"]["containers"][0]["command"]
    assert program == "python3"
    return [sys.executable, *arguments]


def _ask(method: str, url: str, body: Any = None) -> tuple[int, Any]:
    """Status and document; status 0 where nobody listens yet."""
    request = urllib.request.Request(
        url,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {API_KEY}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text.startswith(b"{") else text.decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, None


def _until(
    process: subprocess.Popen[bytes],
    read: Callable[[], T],
    good: Callable[[T], bool],
    *,
    timeout: float = 60.0,
) -> T:
    """Asks until the answer is good, as long as the program lives."""
    deadline = time.monotonic() + timeout
    while not good(found := read()):
        assert process.poll() is None, "it has ended"
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def _items(
    release: Release, plural: str, *, group: str = "/apis/sandlot.dev/v1alpha1"
) -> list[dict[str, Any]]:
    path = f"{group}/namespaces/{release.sandboxes}/{plural}"
    return release.server.call("GET", path)["items"]


def test_the_gateway_comes_up_and_may_do_all_it_wants(release: Release, directory: Path) -> None:
    variables = _variables(release, "gateway", directory)
    url = f"http://127.0.0.1:{variables['SANDLOT_PORT']}"
    with _program(_command(release, "gateway"), log=directory / "log", variables=variables) as gateway:
        _until(gateway, lambda: _ask("GET", f"{url}/readyz")[0], lambda status: status == 200)
        pool = f"{url}/api/v1/pools/made"
        for size in (2, 1):
            status, answer = _ask("PUT", pool, {"image": "python:3.12", "size": size})
            assert status == 200, answer
        (made,) = _items(release, "sandboxpools")
        assert made["spec"]["size"] == 1
        assert _ask("DELETE", pool)[0] == 200
        status, answer = _ask("POST", f"{url}/api/v1/sandbox", {"docker_image": "python:3.12"})
        assert status in (200, 201), answer
        (wanted,) = _until(gateway, lambda: _items(release, "sandboxes"), lambda found: len(found) == 1)
        assert wanted["spec"]["template"]["image"] == "python:3.12"
        log = (directory / "log").read_text()
        assert "forbidden" not in log.lower()


def test_the_controller_makes_and_ends_pods_with_what_it_was_given(release: Release, directory: Path) -> None:
    variables = _variables(release, "controller", directory)
    server, url = release.server, f"http://127.0.0.1:{variables['SANDLOT_HEALTH_PORT']}"
    base = f"/apis/sandlot.dev/v1alpha1/namespaces/{release.sandboxes}"
    try:
        _node(server, release.name)
        with _program(
            _command(release, "controller"), log=directory / "log", variables=variables
        ) as controller:
            _until(controller, lambda: _metric(url, "sandlot_controller_leader"), lambda found: found == 1)
            assert _ask("GET", f"{url}/healthz")[0] == _ask("GET", f"{url}/readyz")[0] == 200
            spec = {"template": {"image": "python:3.12"}}
            pool = {"metadata": {"name": "two"}, "spec": spec | {"size": 2}}
            server.call("POST", f"{base}/sandboxpools", _named(pool, "SandboxPool"))
            pods = _until(controller, lambda: _pods(release), lambda found: len(found) == 2)
            for pod in pods:
                _as_the_chart_says(pod["spec"], release)
            path = f"{base}/sandboxpools/two"
            _until(
                controller,
                lambda: server.call("GET", path).get("status", {}),
                lambda found: found.get("starting") == 2,
            )
            cold = {"metadata": {"name": "i-00000000000000aa"}, "spec": spec}
            server.call("POST", f"{base}/sandboxes", _named(cold, "Sandbox"))
            path = f"{base}/sandboxes/i-00000000000000aa"
            _until(controller, lambda: _pods(release), lambda found: len(found) == 3)
            ended = {"spec": {"ended": {"verdict": "deleted", "message": "by the test"}}}
            server.call("PATCH", path, ended, content_type="application/merge-patch+json")
            status = _until(
                controller,
                lambda: server.call("GET", path).get("status", {}),
                lambda found: found.get("phase") == "Ended",
            )
            assert status["verdict"] == "deleted"
            _until(controller, lambda: _pods(release), lambda found: len(found) == 2)
            lease = f"/apis/coordination.k8s.io/v1/namespaces/{release.namespace}/leases/{release.fullname}-controller"
            assert release.get(lease) is not None
            assert "forbidden" not in (directory / "log").read_text().lower()
    finally:
        for pod in _items(release, "pods", group="/api/v1"):
            path = f"/api/v1/namespaces/{release.sandboxes}/pods/{pod['metadata']['name']}"
            server.call("DELETE", path, {"gracePeriodSeconds": 0})
        server.call("DELETE", f"/api/v1/nodes/{release.name}")


def _named(resource: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"apiVersion": "sandlot.dev/v1alpha1", "kind": kind} | resource


def _pods(release: Release) -> list[dict[str, Any]]:
    """Those that nobody has begun to take away."""
    pods = _items(release, "pods", group="/api/v1")
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def _as_the_chart_says(spec: dict[str, Any], release: Release) -> None:
    assert spec["runtimeClassName"] == "gvisor"
    assert spec["priorityClassName"] == f"{release.fullname}-sandbox"
    assert spec["subdomain"] == "sandboxes"
    assert spec["automountServiceAccountToken"] is False
    (sidecar,) = [each for each in spec["containers"] if each["name"] == "sidecar"]
    assert sidecar["image"] == "sandlot/sidecar:0.1.0"
    (config,) = [each["value"] for each in sidecar["env"] if each["name"] == "SANDLOT_SIDECAR_CONFIG"]
    gateway = f"http://{release.fullname}-gateway.{release.namespace}.svc.cluster.local.:8642"
    assert json.loads(config)["webhook"] == f"{gateway}/internal/sidecar"


def _metric(url: str, name: str) -> float | None:
    status, text = _ask("GET", f"{url}/metrics")
    values = (
        [line.split()[-1] for line in text.splitlines() if line.startswith(f"{name} ")]
        if status == 200
        else []
    )
    return float(values[0]) if values else None


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
        f"--secure-port={_free_port()}",
        "--bind-address=127.0.0.1",
    ]
    nodes = [f"{release.name}-{n}" for n in range(3)]
    try:
        for node in nodes:
            _node(server, node)
        with _program(command, log=directory / "log", variables={}) as scheduler:
            placed = []
            for n in range(6):
                _pod(release, f"i-{n:016x}", scheduler=name)
                path = f"/api/v1/namespaces/{release.sandboxes}/pods/i-{n:016x}"
                pod = _until(
                    scheduler,
                    lambda path=path: server.call("GET", path),
                    lambda pod: "nodeName" in pod["spec"],
                )
                placed.append(pod["spec"]["nodeName"])
        assert len(set(placed)) == 1, placed
    finally:
        for pod in _items(release, "pods", group="/api/v1"):
            path = f"/api/v1/namespaces/{release.sandboxes}/pods/{pod['metadata']['name']}"
            server.call("DELETE", path, {"gracePeriodSeconds": 0})
        for node in nodes:
            server.call("DELETE", f"/api/v1/nodes/{node}")


def _node(server: ApiServer, name: str) -> None:
    server.call(
        "POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}}
    )
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    status = {
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": [{"type": "Ready", "status": "True", "reason": "Test"}],
    }
    server.call(
        "PATCH",
        f"/api/v1/nodes/{name}/status",
        {"status": status},
        content_type="application/merge-patch+json",
    )
    # Admission gives every new node this taint, and a controller that nobody runs here takes it away.
    server.call(
        "PATCH",
        f"/api/v1/nodes/{name}",
        {"spec": {"taints": []}},
        content_type="application/merge-patch+json",
    )


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
