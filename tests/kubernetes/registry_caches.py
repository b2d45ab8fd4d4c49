"""A release whose nodes pull through a cache, in front of the test cluster's registry under another name."""

from __future__ import annotations

import ipaddress
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from images.contents import EPOCH
from images.oci import Entry, write_archive, write_layer
from tests.cluster import cluster
from tests.cluster.config import REGISTRY_HOST
from tests.cluster.paths import BIN
from tests.cluster.relay import Relay, relay
from tests.kubernetes.releases import SMALL
from tests.kubernetes.stack import Stack
from tests.waiting import wait_until

HOST = "cached.sandlot.test:5000"
_IMAGE = "sandlot.test/distribution:dev"
_FILE = f"/etc/containerd/certs.d/{HOST}/hosts.toml"


@dataclass(frozen=True, slots=True)
class Upstream:
    """The cluster's registry as it is behind the cache. `url`: as nodes and pods reach it."""

    relay: Relay
    url: str

    def push(self, directory: Path, name: str, *, size: int) -> str:
        """Push an image with a file that does not compress; return its name at HOST."""
        (directory / name).write_bytes(os.urandom(size))
        layer, archive = directory / f"{name}.layer", directory / f"{name}.tar"
        write_layer(layer, entries=[Entry(source=directory / name, path="data")], epoch=EPOCH)
        write_archive(archive, reference=f"{REGISTRY_HOST}/{name}:1", layers=[layer], config={}, epoch=EPOCH)
        return HOST + cluster.push_image(archive).removeprefix(REGISTRY_HOST)


@contextmanager
def upstream(*, rate: float = math.inf) -> Iterator[Upstream]:
    """`rate`: bytes a second that all get of it together."""
    with relay(cluster.registry_address(), rate=rate) as (made, address):
        yield Upstream(made, f"http://{address}")


def values(of: Upstream, directory: Path) -> dict[str, Any]:
    """The chart's values, with the cache's image on the nodes."""
    cluster.load_image(_distribution(directory))
    address = of.url.removeprefix("http://").partition(":")[0]
    return {
        "nodeAgent": {"enabled": True, "config": {"minFree": 0, "useGrace": 1, "housekeeping": 1}},
        "registryCache": {
            "enabled": True,
            "image": _IMAGE,
            "upstreams": [{"name": "test", "host": HOST, "url": of.url}],
            "size": "1Gi",
            "nodeCIDRs": [str(ipaddress.ip_network(f"{address}/24", strict=False))],
        },
        "gateway.config.registries": [HOST],
    }


def install(stack: Stack, of: Upstream, directory: Path) -> list[str]:
    """Install, and wait until every worker pulls through the cache; return the workers' names."""
    more = ",".join(f"{name}={json.dumps(value)}" for name, value in values(of, directory).items())
    stack.install(*SMALL, "--set-json", more)
    workers = stack.get("nodes", "-l", "!node-role.kubernetes.io/control-plane")["items"]
    names = [each["metadata"]["name"] for each in workers]
    wait_until(lambda: all(map(mirrored, names)), seconds=120, pause=0.3, what="nodes use the cache")
    return names


def mirrored(node: str) -> bool:
    """Whether the node pulls through the cache."""
    return "[host." in _written(node)


def configured(node: str) -> bool:
    """Whether the agent's file is there, which it is while the agent runs."""
    return _written(node) != ""


def _written(node: str) -> str:
    return cluster.recorded().on_node(node, "sh", "-c", f"cat {_FILE} 2>/dev/null || true")


def _distribution(directory: Path) -> Path:
    """The archive of an image with the cluster's registry program where distribution's own image has it."""
    archive, layer = directory / "distribution.tar", directory / "distribution.layer"
    write_layer(
        layer, entries=[Entry(source=BIN / "registry", path="bin/registry", owner=(0, 0))], epoch=EPOCH
    )
    config = {"Env": ["PATH=/bin"]}
    write_archive(archive, reference=_IMAGE, layers=[layer], config=config, epoch=EPOCH)
    return archive
