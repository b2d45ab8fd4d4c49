"""Gives a node of the test cluster GPUs that are harmless devices: a device plugin, as a process on the node."""

from __future__ import annotations

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
MODEL = "SANDLOT-FAKE-GPU"
# Of misc devices that no container may open unless it is given them: fuse, loop-control, autofs, tun.
DEVICES = {"nvidia0": "10:229", "nvidia1": "10:237", "nvidia2": "10:235", "nvidia3": "10:200"}
SOURCES = Path(__file__).parent / "gpu_plugin"
_DIRECTORY = CACHE / "gpu-plugin"
_UNIT = "sandlot-gpus"
_PROGRAM = f"/usr/local/bin/{_UNIT}"


def build() -> Path:
    """Return the plugin, which is built once for its sources."""

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
def fake_gpus_on(stack: Stack, node: str) -> Iterator[None]:
    """Run the plugin until the block ends, and label the node with its model."""
    _on(node, f"cat > {_PROGRAM}.new; chmod +x {_PROGRAM}.new; mv {_PROGRAM}.new {_PROGRAM}", build())
    devices = " ".join(f"{name}={number}" for name, number in DEVICES.items())
    _on(node, f"systemd-run --quiet --collect --unit={_UNIT} {_PROGRAM} {RESOURCE} {devices}")
    try:
        stack.kubectl("label", "node", node, f"{LABEL}={MODEL}", "--overwrite")
        until(lambda: _allocatable(stack, node) == len(DEVICES))
        yield
    finally:
        _on(node, f"systemctl stop {_UNIT}; rm -rf {_PROGRAM} /run/sandlot-gpus")
        stack.kubectl("label", "node", node, f"{LABEL}-")
        # Until then the scheduler would give away what is gone.
        until(lambda: not _allocatable(stack, node))


def _allocatable(stack: Stack, node: str) -> int:
    return int(stack.get("node", node)["status"]["allocatable"].get(RESOURCE, 0))


def _on(node: str, script: str, file: Path | None = None) -> None:
    stdin = None if file is None else file.read_bytes()
    cluster.recorded().on_node(node, "sh", "-ec", script, stdin=stdin)
