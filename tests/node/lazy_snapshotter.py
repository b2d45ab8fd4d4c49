"""A snapshotter that reads layers from the registry as their files are used: stargz as a program of its own."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import gobuild
from tests.cluster.gomodules import environment
from tests.cluster.lock import exclusive
from tests.cluster.paths import CACHE
from tests.cluster.shell import run
from tests.node.registries import Packed
from tests.waiting import SECONDS, wait_until

SOURCES = Path(__file__).parent / "lazy"
_TOC = "containerd.io/snapshot/stargz/toc.digest"
_DIRECTORY = CACHE / "lazy"


def build() -> Path:
    """Return the program, which is built once for its sources."""

    def compile_copy(part: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="sandlot-lazy-") as directory:
            copy = Path(directory) / "lazy"
            shutil.copytree(SOURCES, copy)
            command = ["go", "build", "-C", copy, "-trimpath", "-ldflags", "-s -w", "-o", part, "."]
            run(command, env=environment() | {"GOFLAGS": "-mod=readonly"}, timeout=1800)

    with exclusive(_DIRECTORY / "lock"):
        return gobuild.own_program(
            "lazy", of=sorted(SOURCES.iterdir()), directory=_DIRECTORY, build=compile_copy
        )


@dataclass(frozen=True, kw_only=True)
class Converted:
    """What an image's documents say of a layer whose files can be read one by one."""

    diff_id: str
    annotations: Mapping[str, str]


def convert(archive: Path, blob: Path) -> Converted:
    """Write an archive as such a layer."""
    with blob.open("wb") as out:
        done = subprocess.run(
            [build(), "convert", archive], stdout=out, stderr=subprocess.PIPE, check=True, timeout=900
        )
    toc, diff_id = done.stderr.decode().split()
    return Converted(diff_id=diff_id, annotations={_TOC: toc})


def pack(archive: bytes) -> Packed:
    """Return a layer whose files can be read one by one."""
    with tempfile.TemporaryDirectory(prefix="sandlot-lazy-") as directory:
        source, blob = Path(directory) / "archive", Path(directory) / "blob"
        source.write_bytes(archive)
        converted = convert(source, blob)
        return Packed(blob=blob.read_bytes(), diff_id=converted.diff_id, annotations=converted.annotations)


@contextmanager
def lazy_snapshotter(directory: Path, *, registries: Mapping[str, str]) -> Iterator[Path]:
    """Run one until the block ends, and give its socket. `registries`: their hosts by name."""
    socket = directory / "lazy.sock"
    with (directory / "lazy.log").open("wb") as log:
        process = subprocess.Popen(
            [build(), "serve", directory / "lazy", socket, *map("=".join, registries.items())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(lambda: socket.exists() or process.poll() is not None, what="the snapshotter's socket")
        yield socket
    finally:
        process.terminate()
        process.wait(SECONDS)
