"""What TLS between gateway and sidecar costs on pods: sandboxes with and without it, in turn, through the same gateways."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from sandlot import AsyncSandbox
from sandlot_grade.report.scale import seconds as as_time
from sandlot_grade.report.stats import median

from loadtests.cluster.site import Installation, Pool
from loadtests.floors import COMMAND
from loadtests.local.exec_rows import execs
from loadtests.reading import Reading

ROWS = ("exec_encrypted", "rate_encrypted")
_BOXES = 2  # of each side, for both to be on both nodes
_ROUNDS, _BATCH = 12, 16
_WINDOWS, _SECONDS, _CALLERS = 5, 3.0, 16
_FILES, _BYTES = 5, 16 << 20
# Gateways that can do both call pods of both kinds.
_ABLE = {"sidecarTls.enabled": "true", "sidecarTls.sidecars": "false"}
_ENCRYPTED = {"sidecarTls.enabled": "true"}


async def encrypted(installation: Installation, runtime: str) -> dict[str, Reading]:
    """Measure `exec_encrypted_RUNTIME`, p50 of one caller, and `rate_encrypted_RUNTIME`, each over the one without TLS."""
    site = await installation.with_values(_ABLE)
    try:
        async with site.pool(runtime, size=_BOXES, reuse="never") as pool:
            plain = await _taken(pool)
            await installation.with_values(_ENCRYPTED)
            before = {await pool.pod_of(box) for box in plain}
            await _replaced(pool, before)
            coded = await _taken(pool)
            after = {await pool.pod_of(box) for box in coded}
            speak = {pod.metadata.name for pod in await pool.pods() if pod.encrypted}
            if before & speak or after - speak:
                raise RuntimeError("a sandbox's pod speaks TLS and should not, or should and does not")
            await pool.full(_BOXES)  # else its pods start while these are measured
            return await _compared(runtime, plain, coded)
    finally:
        await installation.with_values({})


async def _taken(pool: Pool) -> list[AsyncSandbox]:
    return await asyncio.gather(*(pool.create() for _ in range(_BOXES)))


async def _replaced(pool: Pool, claimed: set[str], *, timeout: float = 180) -> None:
    """Wait until all others of the pool speak TLS, and are claimable. Raises TimeoutError."""
    async with asyncio.timeout(timeout):
        while True:
            free = [pod for pod in await pool.pods() if pod.metadata.name not in claimed]
            if len(free) == _BOXES and all(pod.encrypted for pod in free):
                break
            await asyncio.sleep(0.5)
        await pool.full(_BOXES)


async def _compared(runtime: str, plain: list[AsyncSandbox], coded: list[AsyncSandbox]) -> dict[str, Reading]:
    sides = (plain, coded)
    times: tuple[list[float], list[float]] = ([], [])
    rates: tuple[list[float], list[float]] = ([], [])
    writes: tuple[list[float], list[float]] = ([], [])
    reads: tuple[list[float], list[float]] = ([], [])
    blob = os.urandom(_BYTES)
    for boxes in sides:
        await execs(boxes, seconds=1.0, callers=_CALLERS)
    for number in range(_ROUNDS):
        for boxes, found in zip(sides, times, strict=True):
            box = boxes[number % _BOXES]
            found += [await _timed(lambda box=box: box.exec(COMMAND)) for _ in range(_BATCH)]
    for _ in range(_WINDOWS):
        for boxes, found in zip(sides, rates, strict=True):
            found.append((await execs(boxes, seconds=_SECONDS, callers=_CALLERS))[0])
    for number in range(_FILES):
        for boxes, written, fetched in zip(sides, writes, reads, strict=True):
            box = boxes[number % _BOXES]
            written.append(await _timed(lambda box=box: box.files.write("/tmp/blob", blob)))
            fetched.append(await _timed(lambda box=box: box.files.read("/tmp/blob")))
    ratios = [coded / plain for plain, coded in zip(*rates, strict=True)]
    return {
        f"exec_encrypted_{runtime}": Reading(
            value=median(times[1]) / median(times[0]),
            parts={"p50, encrypted": as_time(median(times[1])), "plain": as_time(median(times[0]))},
            curves={f"exec, encrypted, {runtime}": times[1], f"exec, plain, {runtime}": times[0]},
        ),
        f"rate_encrypted_{runtime}": Reading(
            value=median(ratios),
            parts={
                "windows": f"{min(ratios):.2f} to {max(ratios):.2f}",
                "execs/s": f"{median(rates[1]):.0f} encrypted, {median(rates[0]):.0f} plain",
                "upload, encrypted ÷ plain": _over(writes),
                "download": _over(reads),
            },
        ),
    }


def _over(found: tuple[Sequence[float], Sequence[float]]) -> str:
    """Return the rate with TLS over that without."""
    plain, coded = (median(list(one)) for one in found)
    return f"{plain / coded:.2f}"


async def _timed(call: Callable[[], Awaitable[Any]]) -> float:
    begun = time.perf_counter()
    await call()
    return time.perf_counter() - begun
