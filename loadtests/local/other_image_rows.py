"""Cost of a claim with an image that its slot does not have, over one with the image that it has, in the same run."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from sandlot_grade.report.scale import seconds as as_time
from sandlot_grade.report.stats import median, percentile

from loadtests.local.reset_rows import gvisor_pod
from loadtests.reading import Reading
from tests.executor.container import Container
from tests.roots import make_root
from tests.sidecar.pod_sidecar import PodSidecar
from tests.sidecar.support import Sidecar

RUNC, GVISOR = "claim_other_image_runc", "claim_other_image_gvisor"
ROUNDS = 25
IDLE = 0.6  # seconds after each reset, as a slot waits for its next owner
IMAGES = ("one", "two")
Images = dict[str, dict[str, Any]]


async def runc(*, rounds: int = ROUNDS) -> dict[str, Reading]:
    """Measure a sidecar beside a container of runc's."""
    with tempfile.TemporaryDirectory(prefix="sandlot-bench-") as name:
        images: Images = {
            each: {"id": f"sha256:{each}", "lower": [str(make_root(Path(name), each))]} for each in IMAGES
        }
        async with _container(name) as box:
            return {RUNC: await measure(box, images, rounds=rounds)}


async def gvisor(*, rounds: int = ROUNDS) -> dict[str, Reading]:
    """Measure a gVisor pod, whose volume gVisor itself keeps."""
    async with gvisor_pod() as box:
        images = {each: box.image(each) for each in IMAGES}
        return {GVISOR: await measure(box, images, rounds=rounds)}


@contextlib.asynccontextmanager
async def _container(images: str) -> AsyncIterator[Sidecar]:
    container = Container()
    try:
        await asyncio.to_thread(container.start)
        box = PodSidecar(container)
        box.config["root"]["images"] = images
        await box.start()
        yield box
        await box.close()
    finally:
        await asyncio.to_thread(container.close)


async def measure(box: Sidecar, images: Images, *, rounds: int) -> Reading:
    """Measure the p50 until the first output after a claim with another image, over the same with the slot's image."""
    others: list[float] = []
    same: list[float] = []
    claims: list[float] = []
    for number in range(rounds + 1):
        image = images[IMAGES[number % 2]]
        other, claim = await _use(box, image)
        repeated, _ = await _use(box, image)
        if number:  # the first round also fills the file cache
            others.append(other)
            claims.append(claim)
            same.append(repeated)
    return Reading(
        value=median(others) / median(same),
        parts={
            "another image p50": as_time(median(others)),
            "p90": as_time(percentile(others, 0.9)),
            "its claim alone p50": as_time(median(claims)),
            "the slot's image p50": as_time(median(same)),
        },
        curves={"another image to first output": others, "the slot's image to first output": same},
    )


async def _use(box: Sidecar, image: dict[str, Any]) -> tuple[float, float]:
    """Return the seconds until the first output, and those of the claim; then reset the slot and let it wait."""
    begun = time.perf_counter()
    await box.claim(image=image)
    claimed = time.perf_counter()
    result = await box.exec(["cat", "/etc/which"])
    ended = time.perf_counter()
    assert f"sha256:{result['stdout'].strip()}" == image["id"], result
    document = (await box.instance("POST", "/v1/reset", json={})).json()
    assert (document["equal"], document["phase"]) == (True, "warm"), document
    await asyncio.sleep(IDLE)
    return ended - begun, claimed - begun
