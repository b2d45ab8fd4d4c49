"""Creates per second through one gateway over stub slots that are always warm, and what each costs the gateway's core."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import time
from dataclasses import dataclass

import psutil
from sandlot_grade.report.stats import percentile

from loadtests.cluster import parts
from loadtests.gateway.http_load import load
from loadtests.gateway.request_rate import started
from loadtests.gateway.rollout_load import RolloutLoad
from loadtests.gateway.stub_slots import StubPool, gateway_over
from loadtests.own_network import in_own_network

_BARE_PORT = 18643
_IMAGE = "python:3.12"
_CREATE = json.dumps({"name": "rollout", "docker_image": _IMAGE, "pool": "slots"}).encode()


@dataclass(frozen=True, slots=True)
class Rollouts:
    """One window of rollouts (create and delete): `rate` a second, `cpu` seconds of the gateway for each, and the
    sorted seconds of each create and delete.
    """

    rate: float
    cpu: float
    creates: list[float]
    deletes: list[float]


@dataclass(frozen=True, slots=True)
class CreateRates:
    """Windows without a pause, and one at half of their rate. `bare`: CPU seconds of a request to a bare ASGI server on
    the same core, before each window.
    """

    full: list[Rollouts]
    half: Rollouts
    bare: list[float]

    @property
    def over_bare(self) -> list[float]:
        return [one.cpu / bare for one, bare in zip(self.full, self.bare, strict=True)]


async def measure(
    *, slots: int = 256, callers: int = 32, seconds: float = 3.0, rounds: int = 3, profiled: float = 0.0
) -> CreateRates:
    """Measure in a network of its own, where every slot has an address. `profiled`: see `main`."""
    return await in_own_network(
        lambda: _measured(slots=slots, callers=callers, seconds=seconds, rounds=rounds, profiled=profiled)
    )


async def _measured(*, slots: int, callers: int, seconds: float, rounds: int, profiled: float) -> CreateRates:
    cores = sorted(os.sched_getaffinity(0))
    async with gateway_over([StubPool("slots", _IMAGE, slots)]) as found:
        gateway = found.gateway
        for thread in gateway.process.threads():
            os.sched_setaffinity(thread.id, {cores[0]})
        with started(
            ["-m", "loadtests.gateway.bare_asgi", "--listen", str(_BARE_PORT)], core=cores[0]
        ) as bare:
            os.sched_setaffinity(0, {cores[-1]})  # of this thread, which ends with the measurement
            await _rollouts(gateway, callers=callers, seconds=1.0)
            if profiled:
                print(f"profile process {gateway.process.pid}", flush=True)
                await _rollouts(gateway, callers=callers, seconds=profiled)
            full: list[Rollouts] = []
            floors: list[float] = []
            for _ in range(rounds):
                floors.append(await _bare(psutil.Process(bare.pid), callers=callers, seconds=seconds / 2))
                full.append(await _rollouts(gateway, callers=callers, seconds=seconds))
            rate = statistics.median(one.rate for one in full) / 2
            half = await _rollouts(gateway, callers=callers, seconds=seconds, rate=rate)
            return CreateRates(full, half, floors)


async def _rollouts(
    gateway: parts.Part, *, callers: int, seconds: float, rate: float | None = None
) -> Rollouts:
    """Measure after a second of the same load; `rate`: as in `RolloutLoad`. Raises RuntimeError if a call fails."""
    host, port = _address(gateway)
    running = RolloutLoad(host, port, key=gateway.api_key, body=_CREATE)
    async with running.callers(callers, rate=rate):
        await asyncio.sleep(min(seconds, 1.0))
        running.clear()
        used, since = parts.cpu(gateway.process), time.perf_counter()
        await asyncio.sleep(seconds)
        took, used = time.perf_counter() - since, parts.cpu(gateway.process) - used
        creates, deletes = sorted(running.creates), sorted(running.deletes)
    if running.failures or not deletes:
        raise RuntimeError(f"{running.failures} calls failed, {len(deletes)} rollouts were done")
    return Rollouts(len(deletes) / took, used / len(deletes), creates, deletes)


async def _bare(process: psutil.Process, *, callers: int, seconds: float) -> float:
    """Return the CPU seconds of a request to the bare server."""
    request = b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n" % len(_CREATE) + _CREATE
    used = parts.cpu(process)
    targets = [("127.0.0.1", _BARE_PORT)] * callers
    found = await load(targets, [[request]] * callers, seconds=seconds, warm_up=0.0)
    return (parts.cpu(process) - used) / len(found.latencies)


def _address(gateway: parts.Part) -> tuple[str, int]:
    host, _, port = gateway.url.removeprefix("http://").rpartition(":")
    return host, int(port)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slots", type=int, default=256)
    parser.add_argument("--callers", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profiled", type=float, default=0.0, help="seconds for a profiler of the gateway")
    found = asyncio.run(measure(**vars(parser.parse_args())))
    numbers = {
        "rollouts_per_s": [round(one.rate) for one in found.full],
        "cpu_us": [round(one.cpu * 1e6) for one in found.full],
        "bare_us": [round(one * 1e6, 1) for one in found.bare],
        "over_bare": [round(one, 1) for one in found.over_bare],
        "half_create_p99_ms": round(percentile(found.half.creates, 0.99) * 1000, 1),
    }
    print(json.dumps(numbers, indent=1))


if __name__ == "__main__":
    main()
