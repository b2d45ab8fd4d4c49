"""Many small images on one node after the other, with a cache of their registry and without. After
`make cluster cluster-images`:
`SANDLOT_TEST_CLUSTER=1 .venv/bin/python -m tests.cluster run -- .venv/bin/python -m loadtests.cluster.registry_cache`.

All that the registry sends goes over one link, of LINK bytes a second. Each way has images of its own.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from tests.cluster import cluster, registry
from tests.cluster.config import REGISTRY_HOST
from tests.kubernetes.registry_caches import HOST, Upstream, install, upstream
from tests.kubernetes.releases import release_of_its_own
from tests.node.registries import CONFIG, MANIFEST

IMAGES = 200
LAYER = 256 << 10  # bytes of each image's own layer
BASE = 8 << 20  # bytes of the layer that all share
LINK = 2 << 20
AT_ONCE = 4  # pulls of a node, as the node agent's default
_TAR = "application/vnd.oci.image.layer.v1.tar"
_DIRECT = "direct.sandlot.test:5000"


class _Layout:
    """An OCI layout with images that share a base."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        (directory / "blobs" / "sha256").mkdir(parents=True)

    def write(self, name: str) -> list[str]:
        """Write the images, and return their paths with tags."""
        base, names = self._blob(_tar("base", BASE)), [f"{name}-{number}:1" for number in range(IMAGES)]
        entries = [self._image(each, base) for each in names]
        index = {"schemaVersion": 2, "manifests": entries}
        (self._directory / "index.json").write_text(json.dumps(index))
        return names

    def _image(self, name: str, base: Mapping[str, object]) -> dict[str, object]:
        layers = [{"mediaType": _TAR, **each} for each in (base, self._blob(_tar(name, LAYER)))]
        config = {
            "architecture": "amd64",
            "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": [each["digest"] for each in layers]},
        }
        document = {"mediaType": CONFIG, **self._blob(json.dumps(config).encode())}
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": document, "layers": layers}
        return {
            "mediaType": MANIFEST,
            **self._blob(json.dumps(manifest).encode()),
            "annotations": {"io.containerd.image.name": f"{REGISTRY_HOST}/{name}"},
        }

    def _blob(self, data: bytes) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        (self._directory / "blobs" / "sha256" / digest).write_bytes(data)
        return {"digest": f"sha256:{digest}", "size": len(data)}


def _tar(name: str, size: int) -> bytes:
    """Return a layer with one file, of random bytes."""

    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo(name.replace(":", "-"))
        info.size = size
        tar.addfile(info, io.BytesIO(os.urandom(size)))
    return out.getvalue()


def _pull(node: str, images: list[str]) -> None:
    script = f"xargs -P {AT_ONCE} -n 1 crictl --timeout 300s pull >/dev/null"
    cluster.recorded().on_node(node, "sh", "-ec", script, stdin="\n".join(images))


def _measure(slow: Upstream, node: str, images: list[str]) -> str:
    sent, begun = slow.relay.sent, time.monotonic()
    _pull(node, images)
    seconds = time.monotonic() - begun
    return f"{seconds:.1f} s, {(slow.relay.sent - sent) / 1e6:.1f} MB from the registry"


def main() -> int:
    engine = cluster.recorded()
    with ExitStack() as exits:
        directory = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="sandlot-images-")))
        slow = exits.enter_context(upstream(rate=LINK))
        stack = exits.enter_context(release_of_its_own("cache", runtime="runc"))
        nodes = install(stack, slow, directory)[:2]
        for node in nodes:
            exits.callback(engine.on_node, node, "rm", "-r", f"/etc/containerd/certs.d/{_DIRECT}")
            registry.tell(engine, node, host=_DIRECT, address=slow.url.removeprefix("http://"))
        for way, host in (("without", _DIRECT), ("with", HOST)):
            layout = directory / way
            names = _Layout(layout).write(way)
            cluster.push_images(layout)
            images = [f"{host}/{name}" for name in names]
            for place, node in zip(("first", "second"), nodes, strict=True):
                exits.callback(
                    engine.on_node,
                    node,
                    "sh",
                    "-c",
                    "xargs crictl rmi >/dev/null 2>&1 || true",
                    stdin="\n".join(images),
                )
                print(f"{way} the cache, {place} node: {_measure(slow, node, images)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
