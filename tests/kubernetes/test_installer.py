"""The DaemonSet that puts gVisor on nodes, against a node from which it was taken away: a sandbox runs under it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot import Client, Sandbox

from images.build import base_layer
from images.contents import EPOCH, by_name
from images.oci import Entry, write_archive, write_layer
from tests.cluster import cluster
from tests.cluster.paths import BIN
from tests.kubernetes.boxes import POOLED
from tests.kubernetes.killing import own_cluster_only
from tests.kubernetes.releases import SMALL, release_of_its_own
from tests.kubernetes.stack import IMAGE, Stack
from tests.waiting import wait_until

pytestmark = pytest.mark.whole_cluster

PROGRAMS = ("runsc", "containerd-shim-runsc-v1")
CONFIG = "/etc/containerd/config.toml"
HANDLER = "runsc-installed"  # none of the nodes knows it
INSTALLER = "sandlot.test/gvisor:dev"


@pytest.fixture
def bare_node() -> Iterator[str]:
    """A node without runsc; at the end it is as before."""
    own_cluster_only()
    engine = cluster.recorded()
    node = cluster.nodes(engine)[-1]

    def on_node(script: str) -> None:
        engine.on_node(node, "sh", "-euc", script)

    def is_quiet() -> bool:
        chosen = ("get", "pods", "-A", "--field-selector", f"spec.nodeName={node}", "-o", "json")
        pods = json.loads(cluster.kubectl(engine, *chosen))["items"]
        return not any(
            "deletionTimestamp" in pod["metadata"] or pod["status"]["phase"] == "Pending" for pod in pods
        )

    # containerd 2.4.2 does not come up again where a container has ended while it was away, and its output is still open.
    wait_until(is_quiet, seconds=300, pause=0.5)
    for name in PROGRAMS:
        path = f"/usr/local/bin/{name}"
        # A program that is mounted there cannot be replaced; what is below the mount is an empty file. Lazily, since
        # other releases' sandboxes run on this node, and the program with them.
        on_node(f"cp {path} {path}.kept; umount -l {path} 2>/dev/null || true; rm -f {path}")
    on_node(f"cp -p {CONFIG} {CONFIG}.kept")
    try:
        yield node
    finally:
        for name in PROGRAMS:
            on_node(f"mv -f /usr/local/bin/{name}.kept /usr/local/bin/{name}")
        on_node(f"mv -f {CONFIG}.kept {CONFIG}")
        wait_until(is_quiet, seconds=300, pause=0.5)
        on_node("systemctl restart containerd")


@pytest.fixture
def image(tmp_path: Path) -> str:
    """What an installation names: an image with a shell and the two programs."""
    layer = tmp_path / "gvisor.layer"
    entries = [Entry(path=f"opt/gvisor/{name}", source=BIN / name, owner=(0, 0)) for name in PROGRAMS]
    write_layer(layer, entries=entries, epoch=EPOCH)
    archive = tmp_path / "gvisor.tar"
    layers = [base_layer(by_name("python").debian), layer]
    write_archive(archive, reference=INSTALLER, layers=layers, config={}, epoch=EPOCH)
    return cluster.load_image(archive)


@pytest.fixture
def release() -> Iterator[Stack]:
    with release_of_its_own("installer", runtime="gvisor") as stack:
        yield stack


def test_a_node_without_gvisor_gets_it(release: Stack, bare_node: str, image: str) -> None:
    runtime = f"gvisor-{release.release}"
    here = f"kubernetes\\.io/hostname={bare_node}"
    release.install(
        *SMALL,
        *("--set", f"gvisor.runtimeClass={runtime},gvisor.createRuntimeClass=true,gvisor.handler={HANDLER}"),
        *("--set", f"gvisor.nodeSelector.{here}"),
        *("--set", f"gvisor.installer.enabled=true,gvisor.installer.image={image}"),
        *("--set", f"gvisor.installer.nodeSelector.{here}"),
        *("--set", "slots.enabled=true,nodeAgent.enabled=true,nodeAgent.config.minFree=0"),
    )
    settings = cluster.recorded().on_node(bare_node, "cat", f"/etc/containerd/sandlot-{HANDLER}.toml")
    assert tomllib.loads(settings)["runsc_config"]["file-access-mounts"] == "exclusive"
    with (
        Client(url=release.url, api_key=release.api_key) as client,
        Sandbox.create(IMAGE, client=client, **POOLED, wait=240) as box,
    ):
        assert "gVisor" in box.exec("dmesg", timeout=60).stdout
        [pod] = release.get("pods", "-n", release.sandboxes, "-l", "sandlot.dev/instance")["items"]
        assert pod["spec"]["runtimeClassName"] == runtime
        assert pod["spec"]["nodeName"] == bare_node
        # Its limits are those of the pod's control group: a gVisor that is not told who manages those is outside of it.
        assert "runsc-sandbox" in in_cgroup_of(pod["metadata"]["uid"], node=bare_node)


def in_cgroup_of(uid: str, *, node: str) -> str:
    """The command lines of what runs in a pod's control group."""
    script = f"""
        for process in /proc/[0-9]*; do
            grep -q -e 'pod{uid}' -e 'pod{uid.replace("-", "_")}' $process/cgroup 2>/dev/null || continue
            tr '\\0' ' ' < $process/cmdline; echo
        done"""
    return cluster.recorded().on_node(node, "sh", "-uc", script)
