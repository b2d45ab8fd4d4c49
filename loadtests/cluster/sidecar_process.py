"""The stubs of all sidecars as processes: each follows a namespace's pods, and answers `count` and `release COMMAND` on stdin."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from sandlot_kube.access import from_kubeconfig
from sandlot_kube.client import KubeClient

from loadtests.cluster import parts
from loadtests.cluster.one_address import has_sidecar, share_sidecars
from loadtests.cluster.pod_exits import pod_exits
from loadtests.cluster.pod_watch import PodWatch
from loadtests.cluster.stub_commands import HOLD, Count
from loadtests.cluster.stub_pods import StubPods
from loadtests.file_limit import raise_limit
from tests.kube.apiserver import ApiServer

PORTS = (
    8701,
    8702,
)  # a process may have 20,000 files, and each of two gateways a connection to each of 10,000 pods


@dataclass(frozen=True, slots=True)
class Sidecars:
    """The processes with the stubs of all sidecars, each for its share of them."""

    processes: list[asyncio.subprocess.Process]

    async def count(self) -> Count:
        told = [json.loads(await self._ask(process, "count")) for process in self.processes]
        return Count(*(sum(one[name] for one in told) for name in ("runs", "held", "attached", "dropped")))

    async def release(self, command: str = HOLD) -> None:
        """End all held commands of this text."""
        for process in self.processes:
            await self._ask(process, f"release {command}")

    async def _ask(self, process: asyncio.subprocess.Process, words: str) -> bytes:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{words}\n".encode())
        return await process.stdout.readline()


@asynccontextmanager
async def sidecars(
    directory: Path, server: ApiServer, namespace: str, *, webhooks: str
) -> AsyncIterator[Sidecars]:
    """Run them, in a network namespace of its own; `webhooks` is the gateways' URL."""
    kubeconfig = server.kubeconfig(directory / "sidecars.kubeconfig")
    async with AsyncExitStack() as stack:
        started = [
            await stack.enter_async_context(
                _running(directory / f"sidecars-{port}.log", str(kubeconfig), namespace, str(port), webhooks)
            )
            for port in PORTS
        ]
        await share_sidecars(PORTS)
        yield Sidecars(started)


@asynccontextmanager
async def _running(log: Path, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "loadtests.cluster.sidecar_process", *words),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=file,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if not await process.stdout.readline():
            told = await asyncio.to_thread(log.read_text, errors="replace")
            raise RuntimeError(f"the stub of the sidecars did not start: {told[-1500:]}")
        yield process
    finally:
        process.stdin.close()
        await process.wait()


async def serve(kubeconfig: Path, namespace: str, port: int, webhooks: str) -> None:
    """Serve until stdin ends. Raises OSError if the port is in use."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    client = KubeClient(from_kubeconfig([kubeconfig]))
    try:
        async with pod_exits(client, namespace) as exited:
            stub = StubPods(
                master=parts.MASTER,
                exited=exited,
                gateway=webhooks,
                serves=lambda address: has_sidecar(address, port, PORTS),
            )
            await _follow(stub, client, namespace, port=port, orders=reader)
    finally:
        await client.close()


async def _follow(
    stub: StubPods, client: KubeClient, namespace: str, *, port: int, orders: asyncio.StreamReader
) -> None:
    """Serve the sidecars of the namespace's pods until the orders end."""
    async with stub.listening(port), PodWatch(stub).following(client, namespace):
        print("ready", flush=True)
        while words := (await orders.readline()).decode().strip():
            if words.startswith("release "):
                stub.commands.release(words.removeprefix("release "))
            print(json.dumps(asdict(stub.commands.count())), flush=True)


if __name__ == "__main__":
    raise_limit()
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]))
