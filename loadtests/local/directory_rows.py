"""A directory of many small files up and down by the SDK against one tar archive and a command that (un)packs it, in turn."""

from __future__ import annotations

import asyncio
import io
import tarfile
import tempfile
import time
from pathlib import Path

from sandlot import AsyncClient, AsyncSandbox
from sandlot_grade.report.scale import seconds as as_time
from sandlot_grade.report.stats import median

from loadtests.reading import Reading

UP, DOWN = "directory_up", "directory_down"
ROWS = (UP, DOWN)
FILES = 2_000  # with 10,000 a round takes a minute
SIZE = 1_000  # bytes of each
IN_A_FOLDER = 100
ROUNDS = 3
_ARCHIVE = "/tmp/packed.tar"


async def directory(client: AsyncClient, *, files: int = FILES, rounds: int = ROUNDS) -> dict[str, Reading]:
    """Measure the seconds of `files.upload` and `files.download` of a directory ÷ those of the archive."""
    took: dict[str, list[float]] = {name: [] for name in ("up", "tar up", "down", "tar down")}
    with tempfile.TemporaryDirectory(prefix="sandlot-bench-") as name:
        source = Path(name) / "tree"
        await asyncio.to_thread(_make, source, files)
        async with await AsyncSandbox.create("host", memory="2GiB", client=client) as box:
            for number in range(rounds):
                at = f"/srv/{number}"
                begun = time.perf_counter()
                await _tar_up(box, source, f"{at}/tar")
                took["tar up"].append(time.perf_counter() - begun)
                begun = time.perf_counter()
                assert await box.files.upload(source, f"{at}/tree") == files * SIZE
                took["up"].append(time.perf_counter() - begun)
                begun = time.perf_counter()
                await _tar_down(box, f"{at}/tree", Path(name) / f"tar-{number}")
                took["tar down"].append(time.perf_counter() - begun)
                begun = time.perf_counter()
                assert await box.files.download(f"{at}/tree", Path(name) / f"back-{number}") == files * SIZE
                took["down"].append(time.perf_counter() - begun)
    return {row: _reading(took[way], took[f"tar {way}"]) for row, way in ((UP, "up"), (DOWN, "down"))}


def _reading(ours: list[float], floor: list[float]) -> Reading:
    return Reading(
        value=median(ours) / median(floor),
        parts={"file by file": as_time(median(ours)), "one archive": as_time(median(floor))},
    )


def _make(source: Path, files: int) -> None:
    for number in range(files):
        folder = source / str(number // IN_A_FOLDER)
        if number % IN_A_FOLDER == 0:
            folder.mkdir(parents=True)
        (folder / str(number)).write_bytes(bytes(SIZE))


async def _tar_up(box: AsyncSandbox, source: Path, target: str) -> None:
    def packed() -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            archive.add(source, ".")
        return buffer.getvalue()

    await box.files.write(_ARCHIVE, await asyncio.to_thread(packed))
    await box.exec(f"mkdir -p {target} && tar -xf {_ARCHIVE} -C {target}", check=True)


async def _tar_down(box: AsyncSandbox, source: str, target: Path) -> None:
    await box.exec(f"tar -cf {_ARCHIVE} -C {source} .", check=True)
    packed = await box.files.read(_ARCHIVE)

    def unpack() -> None:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(target)

    await asyncio.to_thread(unpack)
