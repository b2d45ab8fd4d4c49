"""Code by SandboxFusion's `run_code` through the gateway against the same script on this machine, in turn."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from sandlot import AsyncClient
from sandlot_grade.report.stats import median

from loadtests.reading import Reading

ROW = "fusion_rate"
OPTIONS = ("--fusion", "host")
CALLERS = 32
ROUNDS = 5
_SECONDS = 2.0  # of a window
# The start of Python is what a test case costs at least. `python` itself may be a script that looks for one.
_SCRIPT = f"exec {os.path.realpath(sys.executable)} -c 'print(1)'\n"


async def fusion(client: AsyncClient) -> Reading:
    """Measure scripts per second of 32 callers, by run_code ÷ by `subprocess.run`."""
    endpoint = await client.endpoint()
    address, path = urlsplit(endpoint.url).netloc, f"/fusion/{endpoint.api_key}/run_code"
    body = json.dumps({"code": _SCRIPT, "language": "bash"})

    def by_gateway() -> None:
        connection = http.client.HTTPConnection(address, timeout=60)  # one a request, as verl has it
        try:
            connection.request("POST", path, body, {"content-type": "application/json"})
            told = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        assert told["run_result"]["stdout"] == "1\n", told

    with tempfile.NamedTemporaryFile("w", suffix=".sh") as script:
        script.write(_SCRIPT)
        script.flush()

        def by_spawn() -> None:
            done = subprocess.run(["bash", script.name], capture_output=True, check=True)
            assert done.stdout == b"1\n", done

        await asyncio.to_thread(_rate, by_gateway)  # starts the sandboxes
        through: list[float] = []
        direct: list[float] = []
        for _ in range(ROUNDS):
            direct.append(await asyncio.to_thread(_rate, by_spawn))
            through.append(await asyncio.to_thread(_rate, by_gateway))
    return Reading(
        value=median(through) / median(direct),
        parts={
            "by run_code": f"{median(through):,.1f}/s",
            "by subprocess.run": f"{median(direct):,.1f}/s",
        },
    )


def _rate(call: Callable[[], None]) -> float:
    """Return how many calls of 32 threads end within a second."""
    end = time.monotonic() + _SECONDS

    def caller(_: int) -> int:
        done = 0
        while True:
            call()
            if time.monotonic() > end:
                return done
            done += 1

    with ThreadPoolExecutor(CALLERS) as callers:
        return sum(callers.map(caller, range(CALLERS))) / _SECONDS
