"""Where a load test runs: a local stack of its own, a server that is there, or the chart on a cluster."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Protocol

from sandlot import AsyncClient, AsyncPools
from sandlot.errors import NotFound
from sandlot.grade.stack import PrivateStack

from loadtests.load.baselines import Baselines, MakeSandbox
from loadtests.load.proc import ProcProbe
from loadtests.load.profile import Baseline
from loadtests.load.sampling import Nodes, Probe

FILL_SECONDS = 600.0


class Place(Protocol):
    """`async with` prepares it and leaves it as it was.

    `kind` is what a bound's `where` names, `every` the seconds between two looks at its parts.
    """

    kind: str
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
        """A pool that is full, or None for size 0."""
        ...

    def probe(self, generators: Callable[[], list[int]]) -> Probe: ...

    def nodes(self) -> Nodes: ...

    async def baselines(self, taken: Baselines, plan: Baseline, *, make: MakeSandbox) -> None:
        """Those that only this kind of place has; `make` gives a sandbox to take them in."""
        ...


class Local:
    """A private stack, ended with all its sandboxes."""

    kind = "local"
    image: str | None = "host"
    every = 1.0
    name = "a local stack"

    def __init__(self) -> None:
        self._stack = PrivateStack()

    @property
    def client(self) -> AsyncClient:
        return self._stack.client

    async def __aenter__(self) -> Local:
        await self._stack.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)
        self._stack.remove()

    @asynccontextmanager
    async def pool(self, *, size: int, cpu: float | None) -> AsyncIterator[str | None]:
        async with gateway_pool(self.client, size=size, cpu=cpu, image=self.image) as name:
            yield name

    def probe(self, generators: Callable[[], list[int]]) -> Probe:
        return ProcProbe(mark=str(self._stack.state_dir), gateway=self._stack.pid, generators=generators)

    def nodes(self) -> Nodes:
        return no_nodes

    async def baselines(self, taken: Baselines, plan: Baseline, *, make: MakeSandbox) -> None:
        return


class Server:
    """The server of a URL and an API key. What its parts use is not seen from here."""

    kind = "server"
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

    def probe(self, generators: Callable[[], list[int]]) -> Probe:
        # No process has this in its command line: what is left is the generator.
        return ProcProbe(mark=f"no-stack-of-{os.getpid()}", gateway=0, generators=generators)

    def nodes(self) -> Nodes:
        return no_nodes

    async def baselines(self, taken: Baselines, plan: Baseline, *, make: MakeSandbox) -> None:
        return


@asynccontextmanager
async def gateway_pool(
    client: AsyncClient, *, size: int, cpu: float | None, image: str | None
) -> AsyncIterator[str | None]:
    """A pool made by the control API. Raises WaitTimeout, SandboxLost."""
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


async def no_nodes() -> dict[str, int]:
    return {}
