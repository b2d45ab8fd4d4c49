"""The reference: containerd unpacks an image and reads its config, runc runs it, as on a node of Kubernetes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from images.oci import archive_index
from tests.cluster.paths import BIN
from tests.cluster.shell import run
from tests.waiting import wait_until

_CONFIG = """\
version = 3
root = "{directory}/root"
state = "{directory}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime"]
[grpc]
address = "{directory}/sock"
"""
_MOUNT_AND_RUN = 'eval "$0" && exec "$@"'


class _Container:
    def __init__(self, *, spec: dict[str, Any], mount: str, root: Path) -> None:
        self.arguments: list[str] = spec["process"]["args"]
        self._spec = spec
        self._mount = mount
        self._root = root

    def run(self, argv: Sequence[str], *, as_root: bool = False) -> str:
        """Run a program as the container's first and only process."""
        bundle = Path(tempfile.mkdtemp(prefix="bundle-", dir=self._root))
        try:
            rootfs = bundle / "rootfs"
            rootfs.mkdir()
            process = {**self._spec["process"], "args": list(argv)}
            if as_root:
                process["user"] = {"uid": 0, "gid": 0, "additionalGids": [0]}
            spec = {**self._spec, "process": process, "root": {"path": str(rootfs)}}
            name = f"conformance-{uuid.uuid4().hex[:12]}"
            spec["linux"] = {**spec["linux"], "cgroupsPath": f"/{name}"}
            (bundle / "config.json").write_text(json.dumps(spec))
            runc = ["runc", "--root", self._root / "runc", "run", "--bundle", bundle, name]
            mount = self._mount.replace("TARGET", str(rootfs))
            # In a mount namespace of its own: the mount goes with the container.
            done = subprocess.run(
                ["unshare", "--mount", "--propagation", "private", "sh", "-c", _MOUNT_AND_RUN, mount, *runc],
                stdin=subprocess.DEVNULL, capture_output=True, timeout=110, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr.decode(errors="replace")
            return done.stdout.decode("utf-8", "replace")
        finally:
            shutil.rmtree(bundle)


class CannotOpen(Exception):
    """The snapshotter cannot unpack the image, or containerd makes no container of what it has unpacked."""


class Containers:
    """A containerd of its own."""

    meant = ()

    def __init__(self, directory: Path, *, snapshotter: str) -> None:
        """`native` copies every file from layer to layer; `overlayfs` is a node's, and shows a link to a file of an
        earlier layer as a copy of it.
        """
        self._directory = directory
        self._snapshotter = ["--snapshotter", snapshotter]
        self._ctr = [BIN / "ctr", "--address", directory / "sock"]

    @contextmanager
    def open(self, archive: Path) -> Iterator[_Container]:
        """Unpack an image and remove it afterwards. Raises CannotOpen."""
        snapshotter = self._snapshotter
        name, _ = archive_index(archive)
        container = f"c-{uuid.uuid4().hex[:12]}"
        try:
            try:
                self._run("images", "import", "--local", *snapshotter, archive)
                self._run("containers", "create", *snapshotter, name, container)
            except AssertionError as error:
                raise CannotOpen(str(error)) from error
            spec = json.loads(self._run("containers", "info", container))["Spec"]
            mount = self._run("snapshots", *snapshotter, "mounts", "TARGET", container).strip()
            # With whole paths the options of 127 layers are longer than a mount can take.
            snapshots = f"{self._directory}/root/io.containerd.snapshotter.v1.{snapshotter[1]}/snapshots"
            mount = f"cd {snapshots} && {mount.replace(f'{snapshots}/', '')}"
            yield _Container(spec=_as_in_a_pod(spec), mount=mount, root=self._directory)
        finally:
            self._run("containers", "rm", container, check=False)
            self._run("images", "rm", "--sync", name, check=False)

    def _run(self, *words: object, check: bool = True) -> str:
        done = subprocess.run(
            [*map(str, self._ctr), *map(str, words)], capture_output=True, text=True, timeout=110, check=False
        )
        assert done.returncode == 0 or not check, done.stderr
        return done.stdout


def _as_in_a_pod(spec: dict[str, Any]) -> dict[str, Any]:
    """`ctr` adds a few things that containerd gives no container of a pod."""
    process = {**spec["process"], "noNewPrivileges": False, "terminal": False}
    mounts = [mount for mount in spec["mounts"] if mount["destination"] != "/run"]
    return {**spec, "ociVersion": "1.0.2", "process": process, "mounts": mounts}


@contextmanager
def in_memory() -> Iterator[Path]:
    """A directory for many files: where others write, too, a disk takes minutes to create and remove them."""
    directory = Path(tempfile.mkdtemp(prefix="sandlot-conformance-"))
    run(["mount", "-t", "tmpfs", "-o", "size=8g,mode=711", "sandlot", directory])
    try:
        yield directory
    finally:
        run(["umount", directory])
        directory.rmdir()


@contextmanager
def containerd(*, snapshotter: str = "native") -> Iterator[Containers]:
    """Run a containerd with nothing in it; takes everything away."""
    with in_memory() as directory, _running(directory):
        yield Containers(directory, snapshotter=snapshotter)


@contextmanager
def _running(directory: Path) -> Iterator[None]:
    (directory / "config.toml").write_text(_CONFIG.format(directory=directory))
    (directory / "runc").mkdir()
    log = directory / "log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [BIN / "containerd", "--config", directory / "config.toml"],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=os.environ | {"TMPDIR": str(directory)},
        )  # fmt: skip
    try:
        wait_until(
            lambda: server.poll() is not None or (directory / "sock").exists(), what="containerd's socket"
        )
        yield
    except BaseException:
        print(log.read_text()[-4000:])
        raise
    finally:
        server.terminate()
        server.wait(timeout=120)
