"""File-heavy work in a local sandbox against the same on the machine's own memory file system, in turn."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from sandlot import AsyncClient, AsyncSandbox
from sandlot_grade.report.scale import seconds as as_time
from sandlot_grade.report.stats import median

from loadtests.reading import Reading

PARTS = (
    "write",
    "walk",
    "read",
    "copy",
    "remove",
    "untar",
    "git_status",
    "pip",
    "large_write",
    "large_read",
)
PROGRAM = Path(__file__).with_name("file_work.py").read_text()
FOLDER = "/file-work"  # in sandboxes and containers: on their root file system
MEMORY, DISK = 4 << 30, 2 << 30
ROUNDS = 5
_IN_MEMORY = Path("/dev/shm")
_TIMEOUT = 300
# A virtual environment's interpreter may be invisible to sandboxes, so use its base interpreter.
_PYTHON = os.path.realpath(sys.executable)

Seconds = dict[str, float]
Measure = Callable[[], Awaitable[Seconds]]


def rows(runtime: str = "") -> tuple[str, ...]:
    """Return the names of the rows; each ends with `runtime`."""
    return tuple(by_part(runtime).values())


def by_part(runtime: str = "") -> dict[str, str]:
    """Return the name of each part's row."""
    return {part: f"files_{part}{runtime and f'_{runtime}'}" for part in PARTS}


async def local(client: AsyncClient) -> dict[str, Reading]:
    """Measure on tmpfs: a sandbox keeps its writes in memory, and so does the floor."""
    async with await AsyncSandbox.create(memory=MEMORY, disk=DISK, client=client) as box:
        return await compare(by_part(), ours=lambda: in_sandbox(box, _PYTHON), floor=_on_the_machine)


async def compare(rows: Mapping[str, str], *, ours: Measure, floor: Measure) -> dict[str, Reading]:
    """Return the median of each over some rounds, in turn, because single rounds may be three times too fast.

    `rows`: the name of each part's row.
    """
    found: list[tuple[Seconds, Seconds]] = []
    for _ in range(ROUNDS):
        beside = await floor()
        found.append((await ours(), beside))
    readings: dict[str, Reading] = {}
    for part, row in rows.items():
        mine = [seconds[part] for seconds, _ in found]
        theirs = [seconds[part] for _, seconds in found]
        ratios = [one / other for one, other in zip(mine, theirs, strict=True)]
        readings[row] = Reading(
            value=median(mine) / median(theirs),
            parts={
                "in the sandbox": as_time(median(mine)),
                "without us": as_time(median(theirs)),
                "rounds": ", ".join(f"{ratio:.2f}" for ratio in ratios),
            },
        )
    return readings


async def in_sandbox(box: AsyncSandbox, python: str, *root: str) -> Seconds:
    done = await box.exec([python, "-c", PROGRAM, FOLDER, *root], timeout=_TIMEOUT)
    if not done.ok:
        raise RuntimeError(f"file work in a sandbox: exit code {done.exit_code}: {done.stderr[-500:]}")
    return json.loads(done.stdout)


async def _on_the_machine() -> Seconds:
    if shutil.disk_usage(_IN_MEMORY).free < DISK:
        raise RuntimeError(f"{_IN_MEMORY} has less than {DISK >> 20} MiB free: the floor is measured there")
    with tempfile.TemporaryDirectory(prefix="sandlot-bench-", dir=_IN_MEMORY) as name:
        command = [_PYTHON, "-c", PROGRAM, f"{name}/work"]
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=_TIMEOUT
        )
    if done.returncode != 0:
        raise RuntimeError(f"file work on the machine: exit code {done.returncode}: {done.stderr[-500:]}")
    return json.loads(done.stdout)
