"""The SDK's transport beside aiohttp and httpx: CPU per call with 1 and 2,000 calls in flight, import time."""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager

from sandlot import AsyncClient, AsyncSandbox
from sandlot._protocol.http1 import split_url
from sandlot._protocol.messages import Request
from sandlot._transport_async.transport import AsyncTransport
from sandlot_grade.report.stats import median

BODY = json.dumps({"command": "true"}).encode()
HEADERS = {"Authorization": "Bearer stub", "Content-Type": "application/json", "X-Sandlot-Op": "x" * 32}
HELD, AT_ONCE = "/sbx/sb-1/exec", "/sbx/sb-1/now"  # answered in bursts, and at once
IMPORTS = {
    "(bare python)": "pass",
    "sandlot": "import sandlot",
    "sandlot.Sandbox": "from sandlot import Sandbox",
    "asyncio": "import asyncio",
    "sandlot.AsyncSandbox": "from sandlot import AsyncSandbox",
    "aiohttp": "import aiohttp",
    "httpx": "import httpx",
}
LIMIT = 20  # seconds for one reading
Call = Callable[[], Awaitable[object]]


async def make(name: str, url: str, path: str, stack: AsyncExitStack) -> Call:
    """Return a call that posts and parses the JSON response, by this transport, without a connection limit."""
    if name == "sdk":
        client = await stack.enter_async_context(AsyncClient(url=url, api_key="stub"))
        box = await AsyncSandbox.create(client=client)
        return lambda: box.exec("true")
    if name == "own":
        transport = AsyncTransport()
        stack.push_async_callback(transport.aclose)
        origin, _ = split_url(url)

        async def own() -> object:
            request = Request("POST", origin, path, headers=HEADERS, body=BODY)
            return json.loads((await transport.request(request)).body)

        return own
    if name == "aiohttp":
        import aiohttp

        session = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        )

        async def with_aiohttp() -> object:
            async with session.post(url + path, data=BODY, headers=HEADERS) as answer:
                return json.loads(await answer.read())

        return with_aiohttp
    import httpx

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    session = await stack.enter_async_context(httpx.AsyncClient(limits=limits, timeout=60))

    async def with_httpx() -> object:
        answer = await session.post(url + path, content=BODY, headers=HEADERS)
        return json.loads(answer.content)

    return with_httpx


async def run(name: str, *, url: str, in_flight: int, calls: int) -> dict[str, float]:
    """Measure CPU milliseconds per call and calls per second, after every connection has been used once."""
    async with AsyncExitStack() as stack:
        call = await make(name, url, AT_ONCE if in_flight == 1 else HELD, stack)

        async def caller(count: int) -> None:
            for _ in range(count):
                await call()

        await asyncio.gather(*(caller(1) for _ in range(in_flight)))
        each = max(1, calls // in_flight)
        cpu, wall = time.process_time(), time.perf_counter()
        await asyncio.gather(*(caller(each) for _ in range(in_flight)))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {"cpu_ms": cpu / (each * in_flight) * 1000, "calls_per_s": each * in_flight / wall}


def import_times(rounds: int) -> dict[str, float]:
    """Return the import milliseconds of each in a fresh interpreter, taken in turn."""
    times: dict[str, list[float]] = {name: [] for name in IMPORTS}
    for _ in range(rounds):
        for name, code in IMPORTS.items():
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-I", "-c", code], check=True)
            times[name].append((time.perf_counter() - begin) * 1000)
    return {name: median(values) for name, values in times.items()}


@contextmanager
def stub_server() -> Iterator[str]:
    server = subprocess.Popen(
        [sys.executable, "-m", "loadtests.sdk.stub_api"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
    finally:
        server.terminate()
        server.communicate(timeout=20)


def measure(name: str, *, url: str, in_flight: int, calls: int) -> dict[str, float] | None:
    """Measure in a new process; return None if it takes longer than LIMIT."""
    command = [sys.executable, "-m", "loadtests.sdk.transports", "--one", name, "--url", url]
    command += ["--in-flight", str(in_flight), "--calls", str(calls)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode != 0:
        raise RuntimeError(f"{name}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", help="measure only this one, in this process")
    parser.add_argument("--url")
    parser.add_argument("--in-flight", type=int, default=2000)
    parser.add_argument("--calls", type=int, default=10_000)
    options = parser.parse_args()
    if options.one:
        work = run(options.one, url=options.url, in_flight=options.in_flight, calls=options.calls)
        print(json.dumps(asyncio.run(work)))
        return
    print("import, ms:", {name: round(value, 1) for name, value in import_times(5 * options.rounds).items()})
    for in_flight, calls, names in (
        (1, 2000, ("own", "aiohttp", "httpx")),
        (2000, 10_000, ("own", "aiohttp", "sdk")),
        (2000, 2000, ("httpx",)),
    ):
        for name in names:
            with stub_server() as url:
                rounds = [
                    measure(name, url=url, in_flight=in_flight, calls=calls) for _ in range(options.rounds)
                ]
            readings = [reading for reading in rounds if reading is not None]
            if not readings:
                print(f"{in_flight:>5} in flight  {name:<8} not done within {LIMIT} s")
                continue
            cpu = median([reading["cpu_ms"] for reading in readings])
            rate = median([reading["calls_per_s"] for reading in readings])
            print(f"{in_flight:>5} in flight  {name:<8} {cpu:.3f} ms CPU a call  {rate:6.0f} calls/s")


if __name__ == "__main__":
    main()
