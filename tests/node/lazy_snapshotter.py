"""A snapshotter that reads layers from the registry as their files are used: stargz as a program of its own."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.cluster import gobuild
from tests.cluster.lock import exclusive
from tests.cluster.paths import CACHE
from tests.cluster.shell import run
from tests.node.registries import Packed
from tests.waiting import wait_until

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
            run(command, env=gobuild.environment() | {"GOFLAGS": "-mod=readonly"}, timeout=1800)

    with exclusive(_DIRECTORY / "lock"):
        return gobuild.own_program(
            "lazy", of=sorted(SOURCES.iterdir()), directory=_DIRECTORY, build=compile_copy
        )


def pack(archive: bytes) -> Packed:
    """Return a layer whose files can be read one by one."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(archive)
        file.flush()
        done = subprocess.run([build(), "convert", file.name], capture_output=True, check=True, timeout=120)
    toc, diff_id = done.stderr.decode().split()
    return Packed(blob=done.stdout, diff_id=diff_id, annotations={_TOC: toc})


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
        process.wait(30)
