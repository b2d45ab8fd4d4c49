"""Runs the lazy snapshotter on a node of the test cluster, and a registry whose bytes are counted in front of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster import cluster, registry
from tests.cluster.config import LAZY_HANDLER, LAZY_SNAPSHOTTER, LAZY_SOCKET, REGISTRY_HOST
from tests.cluster.relay import Relay, relay
from tests.cluster.shell import ClusterError
from tests.node.lazy_snapshotter import build
from tests.waiting import wait_until

ROOT = "/var/lib/containerd-stargz-grpc"
COUNTED = "counted.sandlot.test:5000"  # the name of the registry whose bytes are counted
_UNIT = "sandlot-lazy"
_PROGRAM = f"/usr/local/bin/{_UNIT}"


def worker(number: int = 0) -> str:
    """A node to run it on."""
    names = cluster.nodes(cluster.recorded())
    return [name for name in names if not name.endswith("-control-plane")][number]


def values(node: str, *, lazy: bool) -> dict[str, Any]:
    """The chart's values with which sandboxes and their images are on this node; images are soon gone after use."""
    only = {"kubernetes.io/hostname": node}
    found: dict[str, Any] = {
        "nodeAgent.enabled": True,
        "nodeAgent.nodeSelector": only,
        "nodeAgent.config.minFree": 0,
        "nodeAgent.config.useGrace": 1,
        "nodeAgent.config.housekeeping": 1,
        "slots.enabled": True,
        "sandboxes.pods.nodeSelector": only,
        "sandboxes.pods.imagePullPolicy": "Always",
    }
    if lazy:
        found |= {
            "nodeAgent.containerd.snapshotter": LAZY_SNAPSHOTTER,
            "nodeAgent.containerd.runtimeHandler": LAZY_HANDLER,
            "nodeAgent.containerd.snapshotterDirectories": [ROOT],
        }
    return found


@dataclass(frozen=True, slots=True)
class CountedRegistry:
    """The cluster's registry under another name, as the node reaches it."""

    node: str
    relay: Relay
    address: str

    def push(self, layout: Path) -> str:
        """Push the one image of a layout, and return its name at this registry."""
        return COUNTED + cluster.push_image(layout).removeprefix(REGISTRY_HOST)


@contextmanager
def counted_registry(node: str, *, rate: float = math.inf) -> Iterator[CountedRegistry]:
    """`rate`: bytes a second that the node gets of it."""
    with relay(cluster.registry_address(), rate=rate) as (made, address):
        registry.tell(cluster.recorded(), node, host=COUNTED, address=address)
        yield CountedRegistry(node, made, address)


@contextmanager
def lazy_snapshotter_on(counted: CountedRegistry) -> Iterator[None]:
    """Run it until the block ends, by when the images that it has must be released."""
    node = counted.node
    _on(node, f"mkdir -p {ROOT} {Path(LAZY_SOCKET).parent}; rm -f {LAZY_SOCKET}")
    _on(node, f"cat > {_PROGRAM}.new; chmod +x {_PROGRAM}.new; mv {_PROGRAM}.new {_PROGRAM}", build())
    hosts = f"{COUNTED}={counted.address}"
    _on(node, f"systemd-run --quiet --collect --unit={_UNIT} {_PROGRAM} serve {ROOT} {LAZY_SOCKET} {hosts}")
    try:
        wait_until(
            lambda: _snapshots(node) is not None,
            seconds=180,
            pause=0.2,
            what="the snapshotter answers containerd",
        )
        before = _snapshots(node) or set[str]()
        yield
        wait_until(
            lambda: _has_only(node, before), seconds=180, pause=0.5, what="containerd gives the layers back"
        )
    finally:
        _on(node, f"systemctl stop {_UNIT}")
    # The directory itself stays: agents have it mounted.
    _on(node, f"find {ROOT} -mindepth 1 -delete")


def _has_only(node: str, names: set[str]) -> bool:
    found = _snapshots(node)
    return found is not None and found <= names


def _snapshots(node: str) -> set[str] | None:
    """The names that containerd lists of it; None: the snapshotter does not answer."""
    try:
        listed = _on(node, f"ctr -n k8s.io snapshots --snapshotter {LAZY_SNAPSHOTTER} list")
    except ClusterError:
        return None
    return {line.split()[0] for line in listed.splitlines()[1:]}


def _on(node: str, script: str, file: Path | None = None) -> str:
    stdin = None if file is None else file.read_bytes()
    return cluster.recorded().on_node(node, "sh", "-ec", script, stdin=stdin)
