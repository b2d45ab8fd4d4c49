"""16 checkpoints of siblings that differ in 1 % of their files: what they store and take, against whole archives."""

from __future__ import annotations

import asyncio
import io
import os
import random
import shutil
import tarfile
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any, BinaryIO

from sandlot_contract.ids import SandboxId
from sandlot_gateway.checkpoints.checkpoint import Checkpoint
from sandlot_gateway.checkpoints.rules import StoreLimits, new_id
from sandlot_gateway.checkpoints.store import Store
from sandlot_grade.report.scale import seconds as as_time
from sandlot_grade.report.stats import median
from sandlot_sidecar.layer.export import Exporter

from loadtests.reading import Reading

ROW = "checkpoint_siblings"
SIBLINGS = 16
FILES = 3000
_MEAN = 12_000  # bytes of a file
_LARGE = 8 << 20  # bytes of one that cannot be compressed
_PIECE = 1 << 20


async def checkpoint_siblings(*, siblings: int = SIBLINGS, files: int = FILES) -> Reading:
    """Return the bytes that all siblings' checkpoints store together ÷ those of one whole archive."""
    return await asyncio.to_thread(_measured, siblings, files)


def _measured(siblings: int, files: int) -> Reading:
    with tempfile.TemporaryDirectory(prefix="sandlot-siblings-") as directory:
        place = Path(directory)
        workspace, sibling = place / "workspace", place / "sibling"
        _fill(workspace, files=files)
        store = Store(place / "store", limits=StoreLimits())
        shared: list[float] = []
        whole: list[float] = []
        cpu: list[float] = []
        stored = size = 0
        for number in range(siblings):
            shutil.rmtree(sibling, ignore_errors=True)
            shutil.copytree(workspace, sibling)  # with all times, as a restore does
            if number:
                _change(sibling, number, files=files)
            begun = time.perf_counter()
            size = max(size, _whole(sibling, place / "whole"))
            whole.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            data = io.BytesIO()
            _export(sibling, data)
            used = time.process_time()
            made = _saved(store, data.getbuffer())
            cpu.append((time.process_time() - used) / len(data.getbuffer()) * (1 << 30))
            shared.append(time.perf_counter() - begun)
            stored += made.stored_bytes or 0
    parts = {
        "files": f"{files}, {files // 100} of them another's in each sibling",
        "one whole archive": f"{size / 1e6:.1f} MB",
        f"stored by {siblings}": f"{stored / 1e6:.1f} MB",
        "checkpoint p50": as_time(median(shared)),
        "whole archive p50": as_time(median(whole)),
        "time, checkpoint ÷ whole archive": f"{median(shared) / median(whole):.2f}",
        "the gateway's CPU per GiB of archive, first": as_time(cpu[0]),
        "the gateway's CPU per GiB of archive, p50": as_time(median(cpu)),
    }
    return Reading(value=stored / size, parts=parts, curves={"checkpoint": shared, "whole archive": whole})


def _fill(root: Path, *, files: int) -> None:
    chosen = random.Random(1)
    words = [f"{chosen.getrandbits(28):x} ".encode() for _ in range(5000)]
    for number in range(files):
        path = root / f"d{number % 50}" / f"f{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_text(chosen, words))
    (root / "large").write_bytes(chosen.randbytes(_LARGE))


def _change(root: Path, number: int, *, files: int) -> None:
    chosen = random.Random(1000 + number)
    words = [f"{chosen.getrandbits(28):x} ".encode() for _ in range(5000)]
    for one in chosen.sample(range(files), files // 100):
        (root / f"d{one % 50}" / f"f{one}.py").write_bytes(_text(chosen, words))


def _text(chosen: random.Random, words: list[bytes]) -> bytes:
    size = int(chosen.expovariate(1 / _MEAN)) + 50
    return b"".join(chosen.choices(words, k=size // 7 + 1))[:size]


def _export(root: Path, out: BinaryIO) -> None:
    top = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        Exporter(out, max_bytes=None).run([top])
    finally:
        os.close(top)


def _saved(store: Store, data: memoryview) -> Checkpoint:
    now = time.time()
    made = Checkpoint(new_id(), "tenant", SandboxId("sb-1"), "image", 1 << 30, now, now)
    part = store.begin(made)
    for at in range(0, len(data), _PIECE):
        part.write(bytes(data[at : at + _PIECE]))
    store.finish(made, part)
    return made


class _OneStream:
    """A gzip stream without parts, as an archive that is stored whole has it."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._packer = zlib.compressobj(1, zlib.DEFLATED, 31)

    def write(self, data: bytes) -> int:
        self._out.write(self._packer.compress(data))
        return len(data)

    def close(self) -> None:
        self._out.write(self._packer.flush())


def _whole(root: Path, path: Path) -> int:
    """Write one archive as one file; return its bytes."""
    data = io.BytesIO()
    stream: Any = _OneStream(data)
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        archive.add(root, ".")
    stream.close()
    with path.open("wb") as out:
        out.write(data.getbuffer())
        out.flush()
        os.fsync(out.fileno())
    return path.stat().st_size
