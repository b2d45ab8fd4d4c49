"""Runs many concurrent execs through the SDK, in its own process; prints the CPU time per exec."""

from __future__ import annotations

import argparse
import asyncio
import json
import time

from sandlot import AsyncClient, AsyncSandbox


async def run(*, url: str, in_flight: int, calls: int) -> dict[str, float]:
    """Measure CPU milliseconds per call and calls per second, after every connection has been used once."""
    async with AsyncClient(url=url, api_key="stub") as client:
        box = await AsyncSandbox.create(client=client)

        async def caller(count: int) -> None:
            for _ in range(count):
                result = await box.exec("true")
                assert result.exit_code == 0, result

        await asyncio.gather(*(caller(2) for _ in range(in_flight)))
        each = calls // in_flight
        cpu, wall = time.process_time(), time.perf_counter()
        await asyncio.gather(*(caller(each) for _ in range(in_flight)))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    done = each * in_flight
    return {"cpu_ms": cpu / done * 1000, "calls": done, "calls_per_s": done / wall}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--in-flight", type=int, default=2000)
    parser.add_argument("--calls", type=int, default=20_000)
    arguments = parser.parse_args()
    print(json.dumps(asyncio.run(run(**vars(arguments)))))


if __name__ == "__main__":
    main()
