"""Debian's kernel for the virtual machine, from its package, kept in a cache directory."""

from __future__ import annotations

import lzma
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CACHE = Path(os.environ.get("SANDLOT_VM_CACHE", Path.home() / ".cache" / "sandlot-vm"))
META_PACKAGE = "linux-image-amd64"
# For the root and for what the tests make: overlays, links between network namespaces, tunnels.
MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "veth", "tun", "bridge")


class Kernel:
    """An unpacked package."""

    def __init__(self, directory: Path) -> None:
        self._modules = next((directory / "lib/modules").iterdir())
        self.image = next((directory / "boot").glob("vmlinuz-*"))

    def copy_modules(self, target: Path) -> list[str]:
        """Copy the modules that are not built in, uncompressed; return their names, each after those it needs."""
        needs = dict(line.split(":", 1) for line in (self._modules / "modules.dep").read_text().splitlines())
        paths = {Path(path).name.partition(".")[0]: path for path in needs}
        copied: list[str] = []

        def copy(path: str) -> None:
            name = Path(path).name.removesuffix(".xz")
            if name in copied:
                return
            for needed in needs[path].split():
                copy(needed)
            data = (self._modules / path).read_bytes()
            (target / name).write_bytes(lzma.decompress(data) if path.endswith(".xz") else data)
            copied.append(name)

        for module in MODULES:
            if module in paths:
                copy(paths[module])
        return copied


def find_kernel() -> Kernel:
    """Return the kernel of this machine's Debian, downloaded once for each version."""
    package = _package()
    directory = CACHE / package
    if not directory.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        unpacked = Path(tempfile.mkdtemp(dir=CACHE, prefix=".new-"))
        try:
            _unpack(package, unpacked)
            unpacked.rename(directory)
        finally:
            shutil.rmtree(unpacked, ignore_errors=True)
    return Kernel(directory)


def _package() -> str:
    """Return the name of the package that the meta package needs."""
    done = subprocess.run(["apt-cache", "depends", META_PACKAGE], capture_output=True, text=True, check=False)
    found = [line.split()[1] for line in done.stdout.splitlines() if line.strip().startswith("Depends:")]
    if not found:
        sys.exit(f"tests.cgroup_v2: no package {META_PACKAGE}; it needs Debian and `apt-get update`")
    return found[0]


def _unpack(package: str, target: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run(["apt-get", "download", package], cwd=directory, check=True)
        (archive,) = Path(directory).glob("*.deb")
        subprocess.run(["dpkg", "-x", str(archive), str(target)], check=True)
    (modules,) = (target / "lib/modules").iterdir()
    subprocess.run(["busybox", "depmod", "-b", str(target), modules.name], check=True)
