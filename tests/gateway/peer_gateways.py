"""Gateways on Kubernetes that ask each other, as a process of their own where a test kills one."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx

from tests import plain_http, ports
from tests.gateway.kubernetes_world import FIELDS, Running, World
from tests.waiting import until

SECRETS = {"KEY": "value-of-the-secret"}
_numbers = itertools.count(50_000)  # those of the kubelet's sidecars are low


def address() -> str:
    """One on loopback that no other test has."""
    return ports.address(next(_numbers))


@asynccontextmanager
async def two_peers(world: World, **options: Any) -> AsyncIterator[tuple[Running, Running]]:
    """Two of them in this process, at two ports of one address."""
    host = address()
    ports = (18642, 18643)
    async with AsyncExitStack() as stack:
        one, other = [
            await stack.enter_async_context(
                world.gateway(name, host=host, port=own, peers=f"{host}:{its}", **options)
            )
            for name, own, its in (("a", *ports), ("b", *ports[::-1]))
        ]
        yield one, other


RUN = """
import runpy, time
true = time.time
time.time = lambda: true() + {clock_off}
runpy.run_module("sandlot_gateway", run_name="__main__", alter_sys=True)
"""


class Killed:
    """A gateway that is a process of its own, so that a test can kill it."""

    def __init__(
        self, world: World, *, port: int, host: str, peers: str, clock_off: float = 0.0, **more: Any
    ) -> None:
        """`clock_off`: seconds that its machine's clock is ahead of this one's."""
        self._url = f"http://{host}:{port}"
        options = {
            "backend": "kubernetes",
            "key-file": world.directory / "master",
            "state-dir": world.directory / "killed",
            "host": host,
            "port": port,
            "webhook-port": 0,
            "api-keys": "key:alpha::operate",
            "namespace": world.namespace,
            "peers": peers,
            "log-level": "warning",
            **{name.replace("_", "-"): value for name, value in more.items()},
        }
        self._command = [
            sys.executable,
            "-c",
            RUN.format(clock_off=clock_off),
            *(text for name, value in options.items() for text in (f"--{name}", str(value))),
        ]

    async def __aenter__(self) -> Killed:
        self._process = await asyncio.create_subprocess_exec(*self._command, stdout=asyncio.subprocess.PIPE)
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), 60)
        assert b"ready at" in line
        return self

    async def __aexit__(self, *_: object) -> None:
        self.kill()
        await self._process.wait()

    async def ask(self, method: str, path: str, *, key: str = "key", body: Any = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key}"}
        async with plain_http.async_client(base_url=self._url, headers=headers, timeout=60) as client:
            return await client.request(method, path, json=body)

    async def create(self, **fields: Any) -> httpx.Response:
        headers = {"Authorization": "Bearer key"}
        async with plain_http.async_client(base_url=self._url, headers=headers, timeout=60) as client:
            return await client.post("/api/v1/sandbox", json={**FIELDS, **fields})

    async def warm(self) -> None:
        """Until it has every warm pod that there is."""
        headers = {"Authorization": "Bearer key"}
        async with plain_http.async_client(base_url=self._url, headers=headers, timeout=60) as client:

            async def has_all() -> bool:
                return "sandlot_ready_instances 2.0" in (await client.get("/metrics")).text

            await until(has_all)

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()

    def terminate(self) -> None:
        """Ask it to end."""
        self._process.terminate()

    async def drains(self) -> bool:
        """Whether it sends clients to another gateway."""
        try:
            return (await self.ask("GET", "/api/v1/sandbox")).status_code == 503
        except (httpx.ReadError, httpx.RemoteProtocolError):  # it closes idle connections as it begins to
            return False

    async def ended(self) -> int:
        """Its exit status, once it has ended."""
        return await asyncio.wait_for(self._process.wait(), 60)


async def claimed(world: World) -> list[str]:
    """Which sandbox each sidecar has, by its own word."""
    found: list[str] = []
    for sidecar in list(world.kubelet.sidecars.values()):
        headers = {"Authorization": f"Bearer {sidecar.config['token']}"}
        async with plain_http.async_client(
            base_url=f"http://{sidecar.config['listen']}", headers=headers
        ) as client:
            try:
                state = (await client.get("/v1/state")).json()
            except (httpx.NetworkError, httpx.RemoteProtocolError):  # it begins, or ends just now: nobody's
                continue
        found += [state["sandbox_id"]] if state["phase"] == "claimed" else []
    return found


async def cold_names(world: World, count: int = 1) -> list[str]:
    def names() -> list[str]:
        return [name for name in world.kubelet.sandboxes if name.startswith("i-")]

    return await world.kubelet.until(lambda: len(found := names()) >= count and found)
