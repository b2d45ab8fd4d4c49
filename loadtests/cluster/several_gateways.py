"""Several gateways behind one address, of which one is killed and started again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sandlot_contract.sidecar import WEBHOOK_PATH

from loadtests.cluster import one_address, parts
from tests.kube.apiserver import ApiServer

PORT = 8640
WEBHOOK_PORT = 8641
HOSTS = ("127.0.0.2", "127.0.0.3")  # of the gateways
WEBHOOKS = f"http://{one_address.HOST}:{WEBHOOK_PORT}{WEBHOOK_PATH}"  # where sidecars send them
_PORTS = (PORT, WEBHOOK_PORT)
NOTICED = 1.0  # seconds until a Service sends nothing to a gateway that was killed


@dataclass
class Gateways:
    directory: Path
    server: ApiServer
    namespace: str
    api_key: str
    files: int  # that each may have open
    parts: list[parts.Part] = field(default_factory=list[parts.Part])
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start one on each of `HOSTS`, behind one address."""
        hosts = self.directory / "hosts"
        hosts.write_text("".join(f"{host} gateways\n" for host in HOSTS))
        async with self._stack:
            for number, host in enumerate(HOSTS):
                self.parts.append(await self._start(host, home=f"gate{number}"))
            await one_address.point(_PORTS, HOSTS)
            yield

    async def _start(self, host: str, *, home: str, sandboxes: int = 0) -> parts.Part:
        among = parts.OneOfSeveral(host, PORT, self.api_key, self.directory / "hosts", self.files)
        place = self.directory / home
        running = parts.gateway(
            place,
            self.server,
            self.namespace,
            sandboxes=sandboxes,
            among=among,
            options=("--webhook-port", str(WEBHOOK_PORT)),
        )
        return await self._stack.enter_async_context(running)

    async def kill_last(self) -> None:
        """Kill one; after `NOTICED` seconds new connections go to the other."""
        self.parts[-1].process.kill()
        await asyncio.sleep(NOTICED)
        await one_address.point(_PORTS, HOSTS[:-1])

    async def start_again(self, *, sandboxes: int) -> float:
        """Start the killed one again; return the seconds until it knows this many sandboxes."""
        self.parts[-1] = await self._start(HOSTS[-1], home="again", sandboxes=sandboxes)
        await one_address.point(_PORTS, HOSTS)
        return self.parts[-1].took

    async def all_warm(self, count: int) -> bool:
        return all([await one.number("sandlot_ready_instances") >= count for one in self.parts])
