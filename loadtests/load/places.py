"""Places for a load test: a local stack of its own, an existing server, or the chart on a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol

import psutil
from sandlot import AsyncClient, AsyncPools, AsyncSandbox
from sandlot.errors import NotFound

from loadtests.load import peers_here, peers_in_pod
from loadtests.load.baselines import Baselines, MakeSandbox, Taken
from loadtests.load.peers import Peer
from loadtests.load.proc import ProcProbe
from loadtests.load.profile import Baseline
from loadtests.load.sampling import Counts, Probe
from tests.stack import Stack

FILL_SECONDS = 600.0


class PlaceFailed(Exception):
    """The place cannot be set up, or a killed part does not recover; the message says why."""


@dataclass(frozen=True, slots=True)
class Listener:
    """The gateways as code in a sandbox reaches them: (host, port) of each, and a path that needs a credential."""

    addresses: list[tuple[str, int]]
    path: str


class Place(Protocol):
    """A place for a load test; `async with` sets it up and restores it.

    `kind` is the value of a bound's `where`, `every` the seconds between samples of its parts, `breakable` whether its
    parts may be killed.
    """

    kind: str
    breakable: bool
    image: str | None
    every: float

    @property
    def name(self) -> str: ...

    @property
    def client(self) -> AsyncClient: ...

    async def __aenter__(self) -> Place: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def pool(self, *, size: int, cpu: float | None) -> AbstractAsyncContextManager[str | None]:
        """Fill a pool; return None for size 0."""
        ...

    def bare(self, count: int) -> AbstractAsyncContextManager[None]:
        """Run bare pods with the sandboxes' runtime, where sandboxes are pods."""
        ...

    def probe(self, generators: Callable[[], list[int]]) -> Probe: ...

    def nodes(self) -> Counts: ...

    def objects(self) -> Counts: ...

    async def baselines(self, taken: Baselines, plan: Baseline, *, make: MakeSandbox) -> None:
        """Measure the baselines that only this kind of place has; `make` returns a sandbox for them."""
        ...

    async def peer(self, found: Taken, plan: Baseline, box: AsyncSandbox, peer: Peer) -> None:
        """Measure another system's agent in one of our sandboxes. Raises PeerFailed."""
        ...

    async def listener(self) -> Listener:
        """Return the gateway's listener for clients. Raises PlaceFailed if the gateways are not this run's."""
        ...

    async def gateway_memory(self) -> dict[str, int]:
        """Return the resident bytes of each gateway, by its name. Raises PlaceFailed."""
        ...

    async def kill(self, part: str) -> None:
        """Kill one process of the part, as a crash would. Raises PlaceFailed."""
        ...

    async def whole(self, part: str) -> None:
        """Wait until the killed part serves again. Raises PlaceFailed."""
        ...


class Local:
    """A private stack with one gateway, ended with all its sandboxes."""

    kind = "local"
    breakable = True
    image: str | None = "host"
    every = 1.0
    name = "a local stack"

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="sandlot-load-")
        self._stack = Stack(Path(self._directory.name) / "state")
        self._stack.api_key = secrets.token_hex(16)
        self._client: AsyncClient | None = None

    @property
    def client(self) -> AsyncClient:
        assert self._client is not None, "the stack runs"
        return self._client

    async def __aenter__(self) -> Local:
        try:
            await asyncio.to_thread(self._started)
        except BaseException:
            await self._end()
            raise
        self._client = AsyncClient(url=self._stack.url, api_key=self._stack.api_key)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.client.aclose()
        await self._end()

    async def _end(self) -> None:
        await asyncio.to_thread(self._stack.__exit__, None, None, None)
        self._directory.cleanup()

    def _started(self) -> None:
        try:
            self._stack.start()
        except AssertionError as error:
            raise PlaceFailed(f"the local stack did not start: {error}") from error

    def _pid(self) -> int:
        return self._stack.process.pid if self._stack.process is not None else 0

    @asynccontextmanager
    async def pool(self, *, size: int, cpu: float | None) -> AsyncIterator[str | None]:
        async with gateway_pool(self.client, size=size, cpu=cpu, image=self.image) as name:
            yield name

    def bare(self, count: int) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    def probe(self, generators: Callable[[], list[int]]) -> Probe:
        return ProcProbe(mark=str(self._stack.state_dir), gateway=self._pid, generators=generators)

    def nodes(self) -> Counts:
        return no_counts

    def objects(self) -> Counts:
        return no_counts

    async def baselines(self, taken: Baselines, plan: Baseline, *, make: MakeSandbox) -> None:
        return

    async def peer(self, found: Taken, plan: Baseline, box: AsyncSandbox, peer: Peer) -> None:
        await peers_here.measure(found, plan, box, peer)

    async def listener(self) -> Listener:
        """Return the clients' listener: sandboxes reach this machine's network, not the socket for webhooks."""
        return Listener([("127.0.0.1", self._stack.port)], "/api/v1/sandbox")

    async def gateway_memory(self) -> dict[str, int]:
        return {"gateway": psutil.Process(self._pid()).memory_info().rss}

    async def kill(self, part: str) -> None:
        await asyncio.to_thread(self._stack.kill)

    async def whole(self, part: str) -> None:
        """Start the killed gateway again at once, as a supervisor would."""
        await asyncio.to_thread(self._started)


class Server:
    """An existing server. Its parts' resource use is not visible, and they must not be killed."""

    kind = "server"
    breakable = False
    every = 1.0

    def __init__(self, *, url: str, api_key: str, image: str | None) -> None:
        self.name = url
        self.image = image
        self.client = AsyncClient(url=url, api_key=api_key)

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.client.aclose()

    @asynccontextmanager
    async def pool(self, *, size: int, cpu: float | None) -> AsyncIterator[str | None]:
        async with gateway_pool(self.client, size=size, cpu=cpu, image=self.image) as name:
            yield name

    def bare(self, count: int) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    def probe(self, generators: Callable[[], list[int]]) -> Probe:
        # No process has this in its command line, so only the generator is sampled.
        return ProcProbe(mark=f"no-stack-of-{os.getpid()}", gateway=lambda: 0, generators=generators)

    def nodes(self) -> Counts:
        return no_counts

    def objects(self) -> Counts:
        return no_counts

    async def baselines(self, taken: Baselines, plan: Baseline, *, make: MakeSandbox) -> None:
        return

    async def peer(self, found: Taken, plan: Baseline, box: AsyncSandbox, peer: Peer) -> None:
        await peers_in_pod.measure(found, plan, box, peer)

    async def listener(self) -> Listener:
        raise PlaceFailed(f"{self.name} is another's: its gateway is not attacked")

    async def gateway_memory(self) -> dict[str, int]:
        raise PlaceFailed(f"{self.name} is another's: what its gateway uses is not seen from here")

    async def kill(self, part: str) -> None:
        raise PlaceFailed(f"{self.name} is another's: its {part} is not killed")

    async def whole(self, part: str) -> None:
        return


@asynccontextmanager
async def gateway_pool(
    client: AsyncClient, *, size: int, cpu: float | None, image: str | None
) -> AsyncIterator[str | None]:
    """Create a pool by the control API. Raises WaitTimeout, SandboxLost."""
    if not size:
        yield None
        return
    pools = AsyncPools(client=client)
    name = f"loadtest-{secrets.token_hex(3)}"
    await pools.set(name, size=size, cpu=cpu, image=image or "host")
    try:
        await pools.wait_warm(name, timeout=FILL_SECONDS)
        yield name
    finally:
        with contextlib.suppress(NotFound):
            await pools.delete(name)


async def no_counts() -> dict[str, int]:
    return {}
