"""A release's artifacts are enough: alone in a registry, they install without values and serve the packages' SDK."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.artifacts import REGISTRY, Artifacts, published
from tests.kubernetes.boxes import until
from tests.kubernetes.killing import own_cluster_only
from tests.kubernetes.releases import release_of_its_own
from tests.kubernetes.stack import Stack, program
from tests.release.installed import wheels

pytestmark = [
    # The chart's own values ask for more than a core, which no other release leaves: both would wait for each other.
    pytest.mark.whole_cluster,
    pytest.mark.skipif(not os.environ.get("SANDLOT_TEST_ARTIFACTS"), reason="`make test-artifacts` runs it"),
]
EXTRAS = "cli,mcp,local,grade"  # those that need packages of ours, or of the command line
ROLLOUT = """
from sandlot import Client, Sandbox
import json, sandlot, sys
with Client() as client:
    box = Sandbox.create(sys.argv[1], client=client, wait=180)
    result = box.exec("echo $((6 * 7))", timeout=60)
    box.delete()
    left = [each.id for each in Sandbox.list(client=client)]
print(json.dumps({"pool_hit": box.info.pool_hit, "stdout": result.stdout, "left": left, "at": sandlot.__file__}))
"""


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Artifacts]:
    own_cluster_only()
    with published(tmp_path_factory.mktemp("release")) as made:
        yield made


@pytest.fixture(scope="module")
def stack(artifacts: Artifacts) -> Iterator[Stack]:
    with release_of_its_own("artifacts", runtime="gvisor") as made:
        yield made


@pytest.fixture(scope="module")
def programs(artifacts: Artifacts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the packages, what these require, and nothing else."""
    place = tmp_path_factory.mktemp("environment")
    wheels([f"sandlot[{EXTRAS}]"], place / "required")
    subprocess.run([sys.executable, "-m", "venv", place / "venv"], check=True)
    pip = [place / "venv/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # Neither an index nor this tree: ours can only be the release's.
    found = ["--no-index", "--find-links", artifacts.out / "python", "--find-links", place / "required"]
    subprocess.run([*pip, *found, f"sandlot[{EXTRAS}]=={artifacts.version}"], check=True, cwd=place)
    return place / "venv" / "bin"


def test_the_registry_has_the_release_and_nothing_else(artifacts: Artifacts) -> None:
    chart = artifacts.chart.partition("/sandlot/")[2]
    names = {f"sandlot/{name}" for name in (*artifacts.digests, chart)}
    assert set(artifacts.ask("_catalog?n=1000")["repositories"]) == names
    for name in names:
        assert artifacts.ask(f"{name}/tags/list")["tags"] == [artifacts.version]


def test_what_the_registry_gives_is_the_release_byte_by_byte(artifacts: Artifacts) -> None:
    for name, digest in artifacts.digests.items():
        assert artifacts.digest(f"sandlot/{name}/manifests/{artifacts.version}") == digest
    chart = artifacts.chart.partition("/sandlot/")[2]
    for name in (*artifacts.digests, chart):
        manifest = artifacts.ask(f"sandlot/{name}/manifests/{artifacts.version}")
        parts = [one["digest"] for one in (manifest["config"], *manifest["layers"])]
        assert len(parts) > 1
        assert [artifacts.digest(f"sandlot/{name}/blobs/{part}") for part in parts] == parts
    (file,) = (artifacts.out / "chart").iterdir()
    (layer,) = artifacts.ask(f"sandlot/{chart}/manifests/{artifacts.version}")["layers"]
    assert layer["digest"] == f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"


def test_the_packages_give_the_command_line(artifacts: Artifacts, programs: Path) -> None:
    done = subprocess.run(
        [programs / "sandlot", "--help"], capture_output=True, text=True, check=True, cwd=programs
    )
    assert "Usage: sandlot" in done.stdout
    listed = [programs / "python", "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"]
    found = json.loads(subprocess.run(listed, capture_output=True, check=True, cwd=programs).stdout)
    ours = {each["name"].replace("_", "-"): each for each in found if each["name"].startswith("sandlot")}
    assert {"sandlot", "sandlot-contract", "sandlot-gateway", "sandlot-grade", "sandlot-sidecar"} <= set(ours)
    assert {each["version"] for each in ours.values()} == {artifacts.version}
    assert [name for name, each in ours.items() if "editable_project_location" in each] == []


def test_an_install_without_values_serves_the_packages(
    stack: Stack, artifacts: Artifacts, programs: Path
) -> None:
    where = (
        "--namespace",
        stack.namespace,
        "--create-namespace",
        "--version",
        artifacts.version,
        "--plain-http",
    )
    said = stack.helm("install", stack.release, artifacts.chart, *where, "--wait", "--timeout", "8m")
    until(lambda: ready(stack) > 0, seconds=240)
    came_from_the_registry(stack, artifacts)

    commands = [line.strip() for line in said.splitlines() if line.startswith("  ")]
    key = next(line for line in commands if line.startswith("export SANDLOT_API_KEY="))
    forward = next(line for line in commands if "port-forward" in line).replace(" 8642:", " :")
    image = next(line for line in commands if line.startswith("sandlot run ")).split()[2]
    assert image == f"{REGISTRY}/python@{artifacts.digests['python']}"

    # As the notes say, but with a port that is free.
    script = f"""
set -euo pipefail
exec 3< <(exec {forward})
trap 'kill $!' EXIT
read -r _ _ address _ <&3
{key}
export SANDLOT_URL=http://$address
"$1/sandlot" run "$3" -- 'echo hello'
"$1/python" -I -c "$2" "$3"
"""
    done = subprocess.run(
        ["bash", "-c", script, "bash", programs, ROLLOUT, image],
        env={**os.environ, "PATH": f"{Path(program('kubectl')).parent}:{os.environ['PATH']}"},
        cwd=programs,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    hello, told = done.stdout.splitlines()
    result = json.loads(told)
    assert (hello, result["stdout"], result["pool_hit"], result["left"]) == ("hello", "42\n", True, [])
    assert result["at"].startswith(str(programs.parent))

    keys = api_keys(stack)
    stack.helm("upgrade", stack.release, artifacts.chart, *where, "--wait", "--timeout", "8m")
    assert api_keys(stack) == keys


def came_from_the_registry(stack: Stack, artifacts: Artifacts) -> None:
    """Every container's image is the release's, and nodes asked the registry for each; none had one before."""
    namespaces = (stack.namespace, stack.sandboxes)
    pods = [each for name in namespaces for each in stack.get("pods", "-n", name)["items"]]
    containers = [
        one for pod in pods for one in pod["spec"]["containers"] + pod["spec"].get("initContainers", [])
    ]
    used = {one["image"] for one in containers}
    wanted = {name: f"{REGISTRY}/{name}@{digest}" for name, digest in artifacts.digests.items()}
    assert used == {wanted[name] for name in ("gateway", "controller", "sidecar", "python")}
    assert {one["imagePullPolicy"] for one in containers} <= {"IfNotPresent", "Always"}
    until(
        lambda: (
            used <= {image for image in used for text in pulls(stack) if f'pulled image "{image}"' in text}
        )
    )
    asked = artifacts.asked_by_nodes()
    manifests = {f"/v2/sandlot/{image.rpartition('/')[2].replace('@', '/manifests/')}" for image in used}
    assert manifests <= asked


def pulls(stack: Stack) -> list[str]:
    """What kubelets tell of their pulls."""
    return [
        each["message"]
        for namespace in (stack.namespace, stack.sandboxes)
        for each in stack.get("events", "-n", namespace, "--field-selector", "reason=Pulled")["items"]
    ]


def ready(stack: Stack) -> int:
    return int(stack.get("sandboxpool", "default", "-n", stack.sandboxes).get("status", {}).get("ready", 0))


def api_keys(stack: Stack) -> dict[str, Any]:
    found = stack.get("secrets", "-n", stack.namespace)["items"]
    return {each["metadata"]["name"]: str(each["data"]) for each in found if each["type"] == "Opaque"}
