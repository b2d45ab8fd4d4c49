"""A containerd of the tests' own: root, state and socket in a directory, the node's registries configured as on a node."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from sandlot_node.containerd import mounts

from tests.cluster.paths import BIN
from tests.waiting import SECONDS, wait_until

NEEDS_CONTAINERD = [
    pytest.mark.programs,
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount"),
    pytest.mark.skipif(
        not all((BIN / name).exists() for name in ("containerd", "ctr", "registry")),
        reason="needs containerd, ctr and registry of the test cluster (`make cluster` builds them)",
    ),
]

_CONFIG = """
version = 3
root = "{root}"
state = "{state}"
disabled_plugins = ["io.containerd.internal.v1.tracing", "io.containerd.nri.v1.nri"]
[grpc]
  address = "{socket}"
[ttrpc]
  address = "{socket}.ttrpc"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "{snapshotter}"
  disable_snapshot_annotations = false
  use_local_image_pull = {local}
  discard_unpacked_layers = {local}
[plugins."io.containerd.cri.v1.images".registry]
  config_path = "{certs}"
[plugins."io.containerd.grpc.v1.cri"]
  stream_server_port = "0"
"""
LAZY = "stargz"  # the snapshotter that is a program of its own
HANDLER = "lazy"  # the runtime handler whose images it has
# The snapshotter learns from the annotations which layer of which image it is asked for.
_PROXY = """
[plugins."io.containerd.cri.v1.images".runtime_platforms.{handler}]
  snapshotter = "{name}"
[proxy_plugins.{name}]
  type = "snapshot"
  address = "{address}"
"""


class Containerd:
    """A containerd that can be stopped, killed and started again."""

    def __init__(
        self, directory: Path, *, certs: Path, snapshotter: str, local: bool, proxy: Path | None = None
    ) -> None:
        """`proxy`: the socket of the lazy snapshotter."""
        self.directory = directory
        self.root = directory / "root"
        self.state = directory / "state"
        self.socket = directory / "containerd.sock"
        self._log = directory / "containerd.log"
        self._config = directory / "config.toml"
        self.root.mkdir(exist_ok=True)
        self._config.write_text(
            _CONFIG.format(
                root=self.root,
                state=self.state,
                socket=self.socket,
                certs=certs,
                snapshotter=snapshotter,
                local=str(local).lower(),
            )
            + ("" if proxy is None else _PROXY.format(handler=HANDLER, name=LAZY, address=proxy))
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [BIN / "containerd", "--config", self._config],
                env={"PATH": f"{BIN}:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until(self._answers, what=str(self._log))

    def _answers(self) -> bool:
        with suppress(subprocess.CalledProcessError):
            return "cri" in self.ctr("plugins", "ls", "id==cri")
        return False

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(SECONDS)
            self._process = None

    def ctr(self, *words: str | Path) -> str:
        """Run ctr, and return what it prints."""
        done = subprocess.run(
            [BIN / "ctr", "--address", self.socket, "--namespace", "k8s.io", *words],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return done.stdout

    def listed(self, kind: str) -> set[str]:
        """Return the names of `leases`, `snapshots`, `content` or `images`."""
        words = {
            "content": ("content", "ls", "-q"),
            "images": ("images", "ls", "-q"),
            "leases": ("leases", "ls", "-q"),
        }
        if kind == "snapshots":
            return {line.split()[0] for line in self.ctr("snapshots", "ls").splitlines()[1:]}
        return set(self.ctr(*words[kind]).split())

    def image_labels(self) -> dict[str, str]:
        """Return each image's labels as ctr prints them."""
        lines = self.ctr("images", "ls").splitlines()[1:]
        return {line.split()[0]: line.split()[-1] for line in lines}

    def has(self, path: Path, words: str) -> bool:
        """Return whether a file below the path contains these words."""
        found = subprocess.run(["grep", "-raFq", words, path], check=False, timeout=60)
        return found.returncode == 0


@contextmanager
def containerd(
    directory: Path,
    *,
    certs: Path,
    snapshotter: str = "overlayfs",
    local: bool = False,
    proxy: Path | None = None,
) -> Iterator[Containerd]:
    """Run one until the block ends; what is mounted below its directory goes, too."""
    found = Containerd(directory, certs=certs, snapshotter=snapshotter, local=local, proxy=proxy)
    try:
        found.start()
        yield found
    finally:
        found.stop()
        unmount_all(directory)


def unmount_all(directory: Path) -> None:
    for place in sorted(mounts.mounted_below(directory), reverse=True):
        with suppress(mounts.MountError):
            mounts.unmount(place)


def config_in(image_json: Path) -> dict[str, object]:
    return json.loads(image_json.read_text())
