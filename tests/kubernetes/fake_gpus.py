"""Gives a node of the test cluster GPUs that are harmless devices: by a device plugin, or a driver for dynamic resource
allocation, as a process on the node.

`python -m tests.kubernetes.fake_gpus` builds the program: on the cluster's network are no modules, and it takes a minute.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster import cluster, gobuild
from tests.cluster.lock import exclusive
from tests.cluster.paths import CACHE
from tests.cluster.shell import run
from tests.kubernetes.boxes import until
from tests.kubernetes.stack import Stack

RESOURCE, LABEL = "nvidia.com/gpu", "nvidia.com/gpu.product"
MODEL, DRIVEN_MODEL = "SANDLOT-FAKE-GPU", "SANDLOT-DRIVEN-GPU"
DRIVER = "gpus.sandlot.test"
DEVICE_CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": DRIVER},
    "spec": {
        "extendedResourceName": RESOURCE,
        "selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}],
    },
}
# Of misc devices that no container may open unless it is given them: fuse, loop-control, autofs, tun.
DEVICES = {"nvidia0": "10:229", "nvidia1": "10:237", "nvidia2": "10:235", "nvidia3": "10:200"}
SOURCES = Path(__file__).parent / "gpus"
_DIRECTORY = CACHE / "gpus"
_UNIT = "sandlot-gpus"
_PROGRAM = f"/usr/local/bin/{_UNIT}"


def build() -> Path:
    """Return the program, which is built once for its sources."""

    def compile_copy(part: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="sandlot-gpus-") as directory:
            copy = Path(directory) / "gpus"
            shutil.copytree(SOURCES, copy)
            command = ["go", "build", "-C", copy, "-trimpath", "-ldflags", "-s -w", "-o", part, "."]
            run(command, env=gobuild.environment() | {"GOFLAGS": "-mod=readonly"}, timeout=1800)

    with exclusive(_DIRECTORY / "lock"):
        return gobuild.own_program(
            "gpus", of=sorted(SOURCES.iterdir()), directory=_DIRECTORY, build=compile_copy
        )


@contextmanager
def plugin_on(stack: Stack, node: str) -> Iterator[None]:
    """Run the device plugin until the block ends, and label the node with its model."""
    with _running(stack, node, "plugin", RESOURCE, model=MODEL):
        until(lambda: _allocatable(stack, node) == len(DEVICES))
        yield
    # Until then the scheduler would give away what is gone.
    until(lambda: not _allocatable(stack, node))


@contextmanager
def driver_on(stack: Stack, node: str) -> Iterator[None]:
    """Run the driver until the block ends, with a DeviceClass for RESOURCE; label the node with DRIVEN_MODEL."""
    stack.kubectl("apply", "-f", "-", stdin=json.dumps(DEVICE_CLASS))
    try:
        with _running(stack, node, "driver", node, model=DRIVEN_MODEL):
            until(lambda: _published(stack) == [node])
            yield
        stack.kubectl("delete", "resourceslices", "--field-selector", f"spec.driver={DRIVER}")
    finally:
        stack.kubectl("delete", "deviceclass", DRIVER)


@contextmanager
def _running(stack: Stack, node: str, kind: str, target: str, *, model: str) -> Iterator[None]:
    _on(node, f"cat > {_PROGRAM}.new; chmod +x {_PROGRAM}.new; mv {_PROGRAM}.new {_PROGRAM}", build())
    devices = " ".join(f"{name}={number}" for name, number in DEVICES.items())
    _on(node, f"systemd-run --quiet --collect --unit={_UNIT} {_PROGRAM} {kind} {target} {devices}")
    try:
        stack.kubectl("label", "node", node, f"{LABEL}={model}", "--overwrite")
        yield
    finally:
        _on(node, f"systemctl stop {_UNIT}; rm -rf {_PROGRAM} /run/sandlot-gpus")
        stack.kubectl("label", "node", node, f"{LABEL}-")


def _allocatable(stack: Stack, node: str) -> int:
    return int(stack.get("node", node)["status"]["allocatable"].get(RESOURCE, 0))


def _published(stack: Stack) -> list[str]:
    """The nodes whose devices the driver has published."""
    slices = stack.get("resourceslices", "--field-selector", f"spec.driver={DRIVER}")["items"]
    return [each["spec"]["nodeName"] for each in slices]


def _on(node: str, script: str, file: Path | None = None) -> None:
    stdin = None if file is None else file.read_bytes()
    cluster.recorded().on_node(node, "sh", "-ec", script, stdin=stdin)


if __name__ == "__main__":
    build()
