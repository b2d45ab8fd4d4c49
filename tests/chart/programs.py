"""Runs a program with the environment and the service account that the chart gives it, and asks it things."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.chart.release import Release
from tests.chart.render import environment, one
from tests.kube.apiserver import ApiServer
from tests.ports import free_port
from tests.waiting import SECONDS, wait_until

T = TypeVar("T")

API_KEY = "key-of-the-test"


@pytest.fixture
def directory() -> Iterator[Path]:
    """With a short path, since the gateway's sockets are in it."""
    with tempfile.TemporaryDirectory(prefix="sandlot-") as path:
        yield Path(path)


@contextmanager
def running(command: list[str], *, log: Path, variables: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
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
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def variables_of(release: Release, component: str, directory: Path) -> dict[str, str]:
    """Those of the Deployment, with its files and ports moved to where a test may have them."""
    resources = release.resources()
    given = environment(one(resources, "Deployment", f"{release.fullname}-{component}"))
    quotas = one(resources, "ConfigMap", f"{release.fullname}-gateway-quotas")["data"]
    (directory / "quotas").write_text(quotas["quotas.json"])
    (directory / "prices").write_text(quotas["prices.json"])
    (directory / "key").write_bytes(b"k" * 32)
    (directory / "keys").write_text(f"{API_KEY}\n")
    moved = {
        "SANDLOT_KEY_FILE": str(directory / "key"),
        "SANDLOT_API_KEYS_FILE": str(directory / "keys"),
        "SANDLOT_QUOTAS_FILE": str(directory / "quotas"),
        "SANDLOT_PRICES_FILE": str(directory / "prices"),
        "SANDLOT_STATE_DIR": str(directory),
        "SANDLOT_HOST": "127.0.0.1",
        "SANDLOT_PORT": str(free_port()),
        "SANDLOT_WEBHOOK_PORT": str(free_port()),
        "SANDLOT_WAIT_SECONDS": "0",
    }
    kubeconfig = release.account(component, directory / "account")
    variables = given | {name: value for name, value in moved.items() if name in given}
    if component == "controller":
        variables |= {"SANDLOT_HEALTH_HOST": "127.0.0.1", "SANDLOT_HEALTH_PORT": str(free_port())}
    return variables | {"KUBECONFIG": str(kubeconfig)}


def command_of(release: Release, component: str) -> list[str]:
    deployment = one(release.resources(), "Deployment", f"{release.fullname}-{component}")
    program, *arguments = deployment["spec"]["template"]["spec"]["containers"][0]["command"]
    assert program == "python3"
    return [sys.executable, *arguments]


def ask(method: str, url: str, body: Any = None) -> tuple[int, Any]:
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


def until(
    process: subprocess.Popen[bytes],
    read: Callable[[], T],
    good: Callable[[T], bool],
    *,
    timeout: float = SECONDS,
) -> T:
    """Asks until the answer is good, as long as the program lives."""

    def look() -> tuple[T] | None:
        assert process.poll() is None, "it has ended"
        found = read()
        return (found,) if good(found) else None

    return wait_until(look, seconds=timeout, pause=0.1)[0]


def items_of(
    release: Release, plural: str, *, group: str = "/apis/sandlot.dev/v1alpha1"
) -> list[dict[str, Any]]:
    path = f"{group}/namespaces/{release.sandboxes}/{plural}"
    return release.server.call("GET", path)["items"]


def add_node(server: ApiServer, name: str) -> None:
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
