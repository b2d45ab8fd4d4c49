"""A release's artifacts are enough: pushed to a registry, they install without values and serve the packages' SDK."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster import cluster
from tests.cluster.config import REGISTRY_HOST
from tests.kubernetes.boxes import until
from tests.kubernetes.killing import own_cluster_only
from tests.kubernetes.releases import release_of_its_own
from tests.kubernetes.stack import CHART, Stack, program
from tests.release.trees import release

# The chart's own values ask for more than a core, which no other release leaves: both would wait for each other.
pytestmark = pytest.mark.whole_cluster
REGISTRY = f"{REGISTRY_HOST}/sandlot"  # as the nodes call it
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
def version() -> str:
    return yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]


@pytest.fixture(scope="module")
def artifacts(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """With the images that the cluster's tests use, so that nothing is built twice."""
    own_cluster_only()
    if shutil.which("skopeo") is None:
        pytest.skip("needs skopeo, to push the images")
    out = tmp_path_factory.mktemp("release") / version
    done = release("build", version, "--registry", REGISTRY, "--out", str(out), "--dirty")
    assert done.returncode == 0, done.stderr
    yield out
    shutil.rmtree(out)  # a gigabyte


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with release_of_its_own("artifacts", runtime="gvisor") as made:
        yield made


def test_an_install_without_values_serves_the_sdk(
    stack: Stack, artifacts: Path, version: str, tmp_path: Path
) -> None:
    registry = f"{cluster.registry_address()}/sandlot"  # as this program reaches it
    words = ("publish", version, "--registry", registry, "--out", str(artifacts), "--plain-http")
    pushed = release(*words)
    assert pushed.returncode == 0, pushed.stderr
    where = ("--namespace", stack.namespace, "--create-namespace", "--version", version, "--plain-http")
    chart = f"oci://{registry}/charts/sandlot"
    said = stack.helm("install", stack.release, chart, *where, "--wait", "--timeout", "8m")
    until(lambda: ready(stack) > 0, seconds=240)

    commands = [line.strip() for line in said.splitlines() if line.startswith("  ")]
    key = next(line for line in commands if line.startswith("export SANDLOT_API_KEY="))
    forward = next(line for line in commands if "port-forward" in line).replace(" 8642:", " :")
    image = next(line for line in commands if line.startswith("sandlot run ")).split()[2]
    assert image.startswith(f"{REGISTRY}/python@sha256:")

    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    subprocess.run([*pip, "--find-links", artifacts / "python", f"sandlot=={version}"], check=True)
    # As the notes say, but with a port that is free.
    script = f"""
set -euo pipefail
exec 3< <(exec {forward})
trap 'kill $!' EXIT
read -r _ _ address _ <&3
{key}
export SANDLOT_URL=http://$address
"$1" -I -c "$2" "$3"
"""
    done = subprocess.run(
        ["bash", "-c", script, "bash", python, ROLLOUT, image],
        env={**os.environ, "PATH": f"{Path(program('kubectl')).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["stdout"], result["pool_hit"], result["left"]) == ("42\n", True, [])
    assert result["at"].startswith(str(tmp_path))

    keys = api_keys(stack)
    stack.helm("upgrade", stack.release, chart, *where, "--wait", "--timeout", "8m")
    assert api_keys(stack) == keys


def ready(stack: Stack) -> int:
    return int(stack.get("sandboxpool", "default", "-n", stack.sandboxes).get("status", {}).get("ready", 0))


def api_keys(stack: Stack) -> dict[str, str]:
    found = stack.get("secrets", "-n", stack.namespace)["items"]
    return {each["metadata"]["name"]: str(each["data"]) for each in found if each["type"] == "Opaque"}
