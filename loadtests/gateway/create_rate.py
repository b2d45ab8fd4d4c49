"""Creates per second through one gateway over stub slots that are always warm, and what each costs the gateway's core."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil
from sandlot_contract.ids import InstanceId
from sandlot_contract.names import API_VERSION, POOL_KIND
from sandlot_controller.plan.pod import pool_pod
from sandlot_controller.settings import Settings
from sandlot_gateway.tokens import Tokens
from sandlot_grade.report.stats import percentile
from sandlot_kube import paths
from sandlot_kube.client import MERGE_PATCH, KubeClient
from sandlot_kube.objects import SandboxPool

from loadtests.cluster import parts
from loadtests.cluster.control_plane import AT_ONCE, api_server
from loadtests.cluster.stub_pods import StubPods
from loadtests.gateway.http_load import load
from loadtests.gateway.request_rate import started
from loadtests.gateway.rollout_load import RolloutLoad
from loadtests.own_network import in_own_network

_BARE_PORT = 18643
_IMAGE = "python:3.12"
_POOL = {
    "apiVersion": API_VERSION,
    "kind": POOL_KIND,
    "metadata": {"name": "slots"},
    "spec": {
        "size": 0,
        "template": {"image": _IMAGE, "cpu": 1, "memory": 1 << 30, "disk": 5 << 30, "pids": 1024},
        "reuse": {"policy": "tenant", "maxUses": 1_000_000},
    },
}
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
    async with _gateway(slots) as gateway:
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


@asynccontextmanager
async def _gateway(slots: int) -> AsyncIterator[parts.Part]:
    """Run a gateway that knows this many warm slots."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sandlot-rate-")))
        server = stack.enter_context(api_server(directory))
        client = KubeClient(server.access())
        stack.push_async_callback(client.close)
        namespace = server.namespace("creates")
        stub = StubPods(master=parts.MASTER)
        await stack.enter_async_context(stub.listening())
        await _make_pods(client, namespace, stub, count=slots)
        gateway = await stack.enter_async_context(parts.gateway(directory / "gateway", server, namespace))

        async def warm() -> bool:
            return await gateway.number("sandlot_ready_instances") >= slots

        await parts.until(warm)
        yield gateway


async def _make_pods(client: KubeClient, namespace: str, stub: StubPods, *, count: int) -> None:
    """Create a pool and its pods as the controller does, with the status of pods that run."""
    await client.request("POST", paths.pools(namespace), body=_POOL)
    pool, tokens = msgspec.convert(_POOL, SandboxPool), Tokens(parts.MASTER)
    settings = Settings.model_validate(
        {
            "namespace": namespace,
            "key_file": Path("/nonexistent"),
            "webhook_url": "http://gateway.sandlot.svc.cluster.local.:8641/internal/sidecar",
            "sidecar_image": "sandlot/sidecar:1",
        }
    )
    gate = asyncio.Semaphore(AT_ONCE)

    async def make(number: int) -> None:
        instance_id = InstanceId(f"i-{number:016x}")
        stub.know(instance_id)
        pod = pool_pod(pool, instance_id=instance_id, token=tokens.instance(instance_id), settings=settings)
        pod["spec"]["nodeName"] = "node"
        address = f"127.7.{number >> 8}.{number & 255}"
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
        where = f"{paths.pods(namespace, instance_id)}/status"
        async with gate:
            await client.request("POST", paths.pods(namespace), body=pod)
            await client.request("PATCH", where, body={"status": status}, content_type=MERGE_PATCH)

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(make(number))


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
