"""What the images are made of: programs and Debian packages from the registries, fetched once and kept in the cache."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from images.rootfs import bootstrap
from tests.cluster import gobuild
from tests.cluster.debian import download
from tests.cluster.gomodules import environment
from tests.cluster.paths import CACHE
from tests.cluster.shell import run, say

HERE = Path(__file__).resolve().parent
DIRECTORY = CACHE / "conformance"
PACKAGES = DIRECTORY / "debian"
NINJA = "1.13.0"
# Python as Debian has it, without what the smallest Debian has already.
PYTHON = (
    "python3-minimal",
    "python3.11-minimal",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "libexpat1",
)


@dataclass(frozen=True)
class Materials:
    """Reads each thing when an image asks for it."""

    directory: Path = DIRECTORY
    _read: dict[str, bytes] = field(default_factory=dict)

    def probe(self) -> bytes:
        """Our static program that tells what a process sees."""
        source = HERE / "probe" / "main.go"

        def build(part: Path) -> None:
            command = ["go", "build", "-trimpath", "-ldflags", "-s -w", "-o", part, source]
            run(command, env=environment() | {"GOFLAGS": ""})

        program = gobuild.own_program("probe", of=[source], directory=self.directory, build=build)
        return program.read_bytes()

    def busybox(self) -> bytes:
        """The static busybox of Debian."""
        return self.package_file("busybox-static", "bin/busybox")

    def musl(self) -> bytes:
        """musl, which is its own dynamic linker."""
        return self.package_file("musl", "lib/x86_64-linux-musl/libc.so")

    def ninja(self) -> bytes:
        """A program that is linked with musl, from the wheel for such systems."""
        wheels = self.directory / "wheels"
        if not list(wheels.glob(f"ninja-{NINJA}-*.whl")):
            run(
                [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                 "--only-binary", ":all:", "--platform", "musllinux_1_2_x86_64", "--dest", wheels, f"ninja=={NINJA}"]
            )  # fmt: skip
        with zipfile.ZipFile(next(wheels.glob(f"ninja-{NINJA}-*.whl"))) as wheel:
            return wheel.read(next(name for name in wheel.namelist() if name.endswith("/scripts/ninja")))

    def debian(self) -> bytes:
        """The smallest Debian, as a layer."""
        path = self.directory / "debian.tar"
        if not path.exists():
            say("making the conformance tests' Debian")
            bootstrap(path, packages=("base-files",), variant="essential")
        return path.read_bytes()

    def packages(self, names: Sequence[str]) -> bytes:
        """The files of Debian packages as one layer, as they lie in a system whose /lib is a link."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as layer:
            for package in download(names, directory=PACKAGES):
                with tarfile.open(fileobj=io.BytesIO(_contents(package))) as files:
                    for member in files:
                        if not member.isdir():
                            member.name = re.sub(r"^\./(bin|lib|sbin)/", r"./usr/\1/", member.name)
                            layer.addfile(member, files.extractfile(member) if member.isreg() else None)
        return buffer.getvalue()

    def package_file(self, package: str, name: str) -> bytes:
        """One file of a Debian package."""
        key = f"{package}/{name}"
        if key not in self._read:
            (path,) = download((package,), directory=PACKAGES)
            with tarfile.open(fileobj=io.BytesIO(_contents(path))) as files:
                data = files.extractfile(f"./{name}")
                assert data is not None
                self._read[key] = data.read()
        return self._read[key]


def _contents(package: Path) -> bytes:
    """The files of a package as a tar archive."""
    return subprocess.run(
        ["dpkg-deb", "--fsys-tarfile", package], check=True, capture_output=True, timeout=60
    ).stdout
