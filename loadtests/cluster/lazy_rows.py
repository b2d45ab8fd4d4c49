"""The first use of an image that no node has, from a slow registry: loaded lazily against pulled whole."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sandlot import AsyncSandbox
from sandlot_grade.report.scale import seconds as as_time

from loadtests.cluster.site import RUNTIMES, Pool, Site
from loadtests.reading import Reading
from tests.kubernetes.lazy_images import Contents, lazy_image
from tests.kubernetes.lazy_nodes import CountedRegistry, counted_registry, lazy_snapshotter_on, values, worker
from tests.kubernetes.node_agents import leave_no_image

ROWS = tuple(f"lazy_first_output_{runtime}" for runtime in RUNTIMES)
# A fifth of 1 GB from a registry that sends a fifth of 50 MB/s.
CONTENTS = Contents(files=20_000, size=10_000)
RATE = 10_000_000  # bytes a second
_LONGEST = 600.0  # seconds until the first output
_PAUSE = 0.05  # seconds between two looks at a create's progress
_MB = 1_000_000

Install = Callable[[Mapping[str, str]], Awaitable[Site]]


@dataclass(frozen=True, slots=True)
class FirstUse:
    """`told`: how far the image was, as callers saw it. `served`: bytes that the registry sent until the output."""

    seconds: float
    told: tuple[str, ...]
    served: int


async def lazy(install: Install) -> dict[str, Reading]:
    """Measure the rows `lazy_first_output_RUNTIME`, on one node. `install`: the chart with slots and these values."""
    node = worker()
    with tempfile.TemporaryDirectory() as directory, counted_registry(node, rate=RATE) as registry:
        image = await asyncio.to_thread(lazy_image, Path(directory), CONTENTS, layers=1)
        name = await asyncio.to_thread(registry.push, image.layout)
        site = await install(_values(node, lazy=False))
        whole = {runtime: await _first_use(site, runtime, name, registry) for runtime in RUNTIMES}
        parts: dict[str, FirstUse] = {}
        for runtime in RUNTIMES:
            # Anew for each: it keeps what it has read of a layer.
            with lazy_snapshotter_on(registry):
                site = await install(_values(node, lazy=True))
                parts[runtime] = await _first_use(site, runtime, name, registry)
    return {
        row: reading(whole[runtime], parts[runtime], size=image.size)
        for row, runtime in zip(ROWS, RUNTIMES, strict=True)
    }


def _values(node: str, *, lazy: bool) -> dict[str, str]:
    return {name: json.dumps(value) for name, value in values(node, lazy=lazy).items()}


async def _first_use(site: Site, runtime: str, image: str, registry: CountedRegistry) -> FirstUse:
    """Create a sandbox of an image that the node lacks, and read one of its files. No node has it afterwards."""
    async with site.pool(runtime, size=1, slots=True, reuse="never") as pool:
        before, begun = registry.relay.sent, time.perf_counter()
        box = await pool.create(image, wait=0)
        told = await _progress(pool, box)
        result = await box.exec(f"sha256sum /{CONTENTS.path(7)}")
        found = FirstUse(time.perf_counter() - begun, told, registry.relay.sent - before)
        if not result.stdout.startswith(CONTENTS.digest(7)):
            raise RuntimeError(f"the sandbox has another file than its image: {result}")
    await asyncio.to_thread(leave_no_image, site.stack, nodes=[registry.node])
    return found


async def _progress(pool: Pool, box: AsyncSandbox) -> tuple[str, ...]:
    """Wait until a sandbox runs, and return what its creator was told meanwhile."""
    told: dict[str, None] = {}
    async with asyncio.timeout(_LONGEST):
        while True:
            found = await pool.client.call("GET", f"/sandbox/{box.id}")
            if found["status"] != "PENDING":
                break
            if found["pendingMessage"]:
                told[str(found["pendingMessage"])] = None
            await asyncio.sleep(_PAUSE)
    if found["status"] != "RUNNING":
        raise RuntimeError(f"the sandbox did not start: {found['errorMessage']}")
    return tuple(told)


def reading(whole: FirstUse, lazy: FirstUse, *, size: int) -> Reading:
    """Compare both. Raises RuntimeError if the whole pull was none, or was not told with its progress."""
    if whole.served < size:
        raise RuntimeError(
            f"the node had the image: of its {size} bytes the registry sent {whole.served} until the first output"
        )
    progress = [message for message in whole.told if " of " in message]
    if len(progress) < 2:
        raise RuntimeError(f"callers were not told how far the pull was, but: {whole.told}")
    parts = {
        "whole": as_time(whole.seconds),
        "lazy": as_time(lazy.seconds),
        "served": f"{whole.served / _MB:.0f} and {lazy.served / _MB:.1f} MB of {size / _MB:.0f}",
        "at most": f"{RATE / _MB:.0f} MB/s",
        "told of the whole pull": f"{len(progress)} times, at last {progress[-1]!r}",
        "told of the lazy one": ", ".join(lazy.told) or "nothing, it took less than a look",
    }
    return Reading(value=lazy.seconds / whole.seconds, parts=parts)
