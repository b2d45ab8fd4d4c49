"""The container engine that runs the nodes: podman of this machine in a network namespace of its own, or docker as it is."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import versions
from tests.cluster.paths import BIN, ENGINE_RUN, NETNS, PODMAN
from tests.cluster.shell import ClusterError, run, succeeds

CONTAINERS_CONF = """\
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=32768:32768"]
cgroupns = "private"
pids_limit = 0

[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
tmp_dir = "{run}/tmp"
volume_path = "{data}/volumes"

[network]
network_backend = "netavark"
network_config_dir = "{data}/networks"
"""

STORAGE_CONF = """\
[storage]
driver = "overlay"
graphroot = "{data}/storage"
runroot = "{run}/storage"
"""

BLOB_CACHE = Path("/var/lib/containers/cache")
# A podman that nobody has used yet makes directories all over the machine when it is only asked for its state.
PODMAN_IN_USE = (
    Path("/var/lib/containers/storage"),
    Path.home() / ".local" / "share" / "containers" / "storage",
)


@dataclass(frozen=True, kw_only=True)
class Engine:
    """How a program of the cluster is run on this machine."""

    provider: str
    node_image: str
    netns: str | None

    def environment(self) -> dict[str, str]:
        """The variables with which kind, the engine and kubectl are to be started."""
        env = {**os.environ, "KIND_EXPERIMENTAL_PROVIDER": self.provider}
        env["PATH"] = f"{BIN}:{env.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"
        env.pop("KUBECONFIG", None)
        if self.netns is not None:
            env["CONTAINERS_CONF"] = str(PODMAN / "containers.conf")
            env["CONTAINERS_STORAGE_CONF"] = str(PODMAN / "storage.conf")
            for name in list(env):
                if name.lower().endswith("_proxy"):
                    del env[name]
        return env

    def inside(self, command: Sequence[str | Path]) -> list[str]:
        """A command as it has to be started to reach the cluster's addresses."""
        words = [str(word) for word in command]
        # Not `ip netns exec`: that remounts /sys and hides the cgroup mounts.
        return words if self.netns is None else ["nsenter", f"--net=/run/netns/{self.netns}", *words]

    def run(
        self, command: Sequence[str | Path], *, stdin: str | bytes | None = None, timeout: float = 600
    ) -> str:
        """Runs a command where the cluster is."""
        return run(self.inside(command), env=self.environment(), stdin=stdin, timeout=timeout)

    def on_node(
        self, node: str, *command: str, stdin: str | bytes | None = None, timeout: float = 600
    ) -> str:
        """Runs a command on a node."""
        flags = ["-i"] if stdin is not None else []
        return self.run([self.provider, "exec", *flags, node, *command], stdin=stdin, timeout=timeout)


def own_podman(node_image: str) -> Engine:
    """podman with storage, networks and a network namespace of its own; nothing of it is there before `prepare`."""
    return Engine(provider="podman", node_image=node_image, netns=NETNS)


def reachable() -> Engine | None:
    """docker or podman as the machine has it, if it can pull kind's own node image."""
    choice = os.environ.get("SANDLOT_CLUSTER_NODE_IMAGE", "auto")
    if choice not in ("auto", "kindest", "built"):
        raise ClusterError(f"SANDLOT_CLUSTER_NODE_IMAGE is {choice!r}; it may be auto, kindest or built")
    if choice == "built":
        return None
    for provider in ("docker", "podman"):
        if provider == "podman" and not any(place.exists() for place in PODMAN_IN_USE):
            continue
        if shutil.which(provider) is None or not succeeds([provider, "info"], timeout=20):
            continue
        image = versions.KIND_NODE_IMAGE
        there = succeeds([provider, "image", "inspect", image])
        # The manifest first: it tells within seconds whether the registry can be reached at all.
        if there or (
            succeeds([provider, "manifest", "inspect", image], timeout=20)
            and succeeds([provider, "pull", image], timeout=1800)
        ):
            return Engine(provider=provider, node_image=image, netns=None)
    if choice == "kindest":
        raise ClusterError(f"{versions.KIND_NODE_IMAGE}: neither docker nor podman can pull it")
    return None


def prepare(engine: Engine) -> None:
    """Makes what podman needs here: configuration, directories, the network namespace."""
    if engine.netns is None:
        return
    if os.geteuid() != 0:
        raise ClusterError("the cluster's nodes are made by root on this machine: run this as root")
    for directory in (PODMAN / "networks", PODMAN / "storage", PODMAN / "volumes", ENGINE_RUN / "tmp"):
        directory.mkdir(parents=True, exist_ok=True)
    places = {"run": ENGINE_RUN, "data": PODMAN}
    (PODMAN / "containers.conf").write_text(CONTAINERS_CONF.format(**places))
    (PODMAN / "storage.conf").write_text(STORAGE_CONF.format(**places))
    Path("/lib/modules").mkdir(exist_ok=True)
    if not Path(f"/run/netns/{engine.netns}").exists():
        run(["ip", "netns", "add", engine.netns])
    run(["ip", "-n", engine.netns, "link", "set", "lo", "up"])


def dismantle(engine: Engine) -> None:
    """Takes away what `prepare` and the containers made; images stay in the cache."""
    if engine.netns is None:
        return
    if (PODMAN / "containers.conf").exists() and Path(f"/run/netns/{engine.netns}").exists():
        engine.run(["podman", "rm", "--force", "--all", "--volumes", "--time", "0"])
        engine.run(["podman", "volume", "prune", "--force"])
        engine.run(["podman", "network", "prune", "--force"])
    if Path(f"/run/netns/{engine.netns}").exists():
        # Helpers of the engine, such as its name server: whatever still lives in a namespace that we made.
        for pid in run(["ip", "netns", "pids", engine.netns]).split():
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                continue
        run(["ip", "netns", "del", engine.netns])
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted(mounts, reverse=True):
        if mount.startswith((f"{ENGINE_RUN}/", f"{PODMAN}/")):
            run(["umount", "--lazy", mount])
    shutil.rmtree(ENGINE_RUN, ignore_errors=True)
    # podman keeps a cache there whatever its configuration says.
    if BLOB_CACHE.exists() and [path.name for path in BLOB_CACHE.parent.iterdir()] == [BLOB_CACHE.name]:
        shutil.rmtree(BLOB_CACHE.parent)
    _remove_cgroups()


def _remove_cgroups() -> None:
    """The engine's parent groups, which it leaves behind; one that is in use stays."""
    for parent in Path("/sys/fs/cgroup").glob("*/libpod_parent"):
        for directory, _, _ in os.walk(parent, topdown=False):
            try:
                os.rmdir(directory)
            except OSError:
                continue
