"""Requests per second through one gateway process on one core with stub sidecars, and on its floors."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import uvloop
from sandlot_contract.ids import SandboxId
from sandlot_gateway.tokens import Tokens

from loadtests.gateway.data_plane_server import KEY
from loadtests.gateway.http_load import LoadResult, load
from loadtests.gateway.stub_sidecars import addresses

COMMAND = b'{"command":"true","timeout":30,"working_dir":null,"env":{}}'  # 60 bytes


@contextmanager
def started(arguments: list[str], *, core: int | None):
    """Start a child process on its own core and wait until it prints `ready`."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE)
    try:
        if core is not None:
            os.sched_setaffinity(process.pid, {core})
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            raise RuntimeError(f"{arguments[1]} did not start")
        yield process
    finally:
        process.terminate()
        process.wait(timeout=20)
        assert process.stdout is not None
        process.stdout.close()


def _request(path: str, token: str) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(COMMAND)}\r\n\r\n"
    ).encode() + COMMAND


def measure(
    *,
    seconds: float = 5.0,
    callers: int = 64,
    upstreams: int = 1000,
    sandboxes: int = 10_000,
    unix: bool = False,
) -> dict[str, float]:
    """Measure k requests/s and percentiles (ms) through the gateway, a bare server on its core, and the stubs."""
    cores = sorted(os.sched_getaffinity(0))
    gateway_core, load_core = cores[0], cores[-1]
    tokens = Tokens(KEY)
    expires = int(time.time()) + 3600
    with ExitStack() as stack:
        listen = ["--port", "18700"]
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sandlot-rate-")))
        if unix:
            listen += ["--unix", str(directory)]
        stubs = ["-m", "loadtests.gateway.stub_sidecars", "--count", str(upstreams), *listen]
        stack.enter_context(started(stubs, core=load_core))
        own = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {load_core})
        stack.callback(os.sched_setaffinity, 0, own)
        floor = LoadResult()
        if not unix:
            where = [address.rpartition(":") for address in addresses(upstreams, directory=None, port=18700)]
            targets = [(host, int(port)) for host, _, port in where[:callers]]
            one = [_request("/v1/exec", "sst_" + "x" * 43)]
            floor = uvloop.run(load(targets, [one] * callers, seconds=seconds, warm_up=0.5))
        with started(["-m", "loadtests.gateway.bare_asgi", "--listen", "18643"], core=gateway_core):
            one = [_request("/sbx/sb-000000/exec", "sst_" + "x" * 43)]
            bare = uvloop.run(
                load([("127.0.0.1", 18643)] * callers, [one] * callers, seconds=seconds, warm_up=0.5)
            )
        gateway = stack.enter_context(
            started(
                [
                    "-m",
                    "loadtests.gateway.data_plane_server",
                    "--upstreams",
                    str(upstreams),
                    "--sandboxes",
                    str(sandboxes),
                    *listen,
                ],
                core=gateway_core,
            )
        )
        requests = [
            [
                _request(f"/sbx/sb-{n:06d}/exec", tokens.client(SandboxId(f"sb-{n:06d}"), "default", expires))
                for n in range(caller, sandboxes, callers)
            ]
            for caller in range(callers)
        ]
        process = psutil.Process(gateway.pid)
        cpu_before = sum(process.cpu_times()[:2])
        result = uvloop.run(load([("127.0.0.1", 18642)] * callers, requests, seconds=seconds, warm_up=2.0))
        cpu = sum(process.cpu_times()[:2]) - cpu_before
        numbers = {
            "requests_k_per_s": result.rate / 1000,
            "p50_ms": result.percentile(0.5) * 1000,
            "p99_ms": result.percentile(0.99) * 1000,
            "failures": float(result.failures),
            "cpu_us_per_request": cpu / (len(result.latencies) * (seconds + 2.0) / seconds) * 1e6,
            "bare_k_per_s": bare.rate / 1000,
            "bare_p99_ms": bare.percentile(0.99) * 1000,
            "rss_mb": process.memory_info().rss / 1e6,
        }
        if not unix:
            numbers |= {
                "floor_k_per_s": floor.rate / 1000,
                "floor_p50_ms": floor.percentile(0.5) * 1000,
                "floor_p99_ms": floor.percentile(0.99) * 1000,
                "share_of_floor": result.rate / floor.rate,
            }
        return {name: round(value, 3) for name, value in numbers.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--callers", type=int, default=64)
    parser.add_argument("--upstreams", type=int, default=1000)
    parser.add_argument("--sandboxes", type=int, default=10_000)
    parser.add_argument("--unix", action="store_true", help="stub sidecars on Unix sockets (no floor then)")
    arguments = parser.parse_args()
    print(json.dumps(measure(**vars(arguments)), indent=1))


if __name__ == "__main__":
    main()
