"""Create to first output with Prime's unmodified clients, minus the same client's time against a stub.

The two take turns in one run, so that a slower or busier machine changes both.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from sandlot import AsyncClient, AsyncPools, AsyncSandbox
from sandlot_grade.report.scale import seconds as as_time
from sandlot_grade.report.stats import median, percentile

from loadtests.local.create_rows import POOL, SIZE, full
from loadtests.reading import Reading
from tests.prime.environments import client_env, environment

_CLIENT = Path(__file__).with_name("client.py")
_IGNORED = 3  # first rounds, which also open connections


async def prime_create(client: AsyncClient, *, version: str, rounds: int = 40) -> Reading:
    """Measure the p50 with the stack of `client` minus that with a stub, in ms, with a full pool each time."""
    python = await asyncio.to_thread(environment, "prime-sandboxes", version)
    endpoint = await client.endpoint()
    pools = AsyncPools(client=client)
    await pools.set(POOL, size=SIZE)
    ours: list[dict[str, Any]] = []
    floor: list[dict[str, Any]] = []
    hits = 0
    async with (
        _stub() as url,
        _Rounds(python, url=endpoint.url, api_key=endpoint.api_key or "") as here,
        _Rounds(python, url=url, api_key="stub") as there,
    ):
        for number in range(rounds + _IGNORED):
            await full(pools)
            seen, beside = await here.one(), await there.one()
            if number < _IGNORED:
                continue
            ours.append(seen)
            floor.append(beside)
            hits += (await AsyncSandbox.connect(seen["id"], client=client)).info.pool_hit
    await pools.delete(POOL)
    first, least = [each["first"] for each in ours], [each["first"] for each in floor]
    return Reading(
        value=(median(first) - median(least)) * 1000,
        parts={
            "first output p50": as_time(median(first)),
            "stub p50": as_time(median(least)),
            "ratio": f"{median(first) / median(least):.2f} ×",
            "to first output p90": as_time(percentile(first, 0.9)),
            "created p50": f"{as_time(_middle(ours, 'created'))} (stub {as_time(_middle(floor, 'created'))})",
            "waited for p50": f"{as_time(_middle(ours, 'waited'))} (stub {as_time(_middle(floor, 'waited'))})",
            "from the pool": f"{hits} of {rounds}",
        },
        curves={f"prime-sandboxes {version}": first, f"prime-sandboxes {version}, stub": least},
    )


def _middle(rounds: list[dict[str, Any]], name: str) -> float:
    return median([each[name] for each in rounds])


class _Rounds:
    """A client's process, which runs one round per request."""

    def __init__(self, python: Path, *, url: str, api_key: str) -> None:
        self._home = tempfile.TemporaryDirectory()
        self._command = (str(python), "-B", str(_CLIENT))
        self._env = client_env(Path(self._home.name), url=url, api_key=api_key)

    async def __aenter__(self) -> _Rounds:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *self._command, env=self._env, cwd=self._home.name, stdin=pipe, stdout=pipe, stderr=pipe
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.communicate()
        self._home.cleanup()

    async def one(self) -> dict[str, Any]:
        """Return the next round's result. Raises RuntimeError with the client's message."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with contextlib.suppress(ConnectionError):  # if it has ended, the error below says why
            stdin.write(b"\n")
            await stdin.drain()
        async with asyncio.timeout(60):
            line = await stdout.readline()
        if not line:
            words = (await self._process.communicate())[1].decode(errors="replace")
            raise RuntimeError(f"the client ended: {words[-2000:]}")
        return json.loads(line)


@contextlib.asynccontextmanager
async def _stub() -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "loadtests.prime.stub", stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}"
    finally:
        process.terminate()
        await process.wait()
