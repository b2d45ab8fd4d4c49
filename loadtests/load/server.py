"""An existing server as a place for load tests, whose parts a load test neither sees nor changes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from types import TracebackType

from sandlot import AsyncClient, AsyncSandbox
from sandlot.models import SandboxInfo

from loadtests.load import peers_in_pod
from loadtests.load.baselines import Baselines, Callers, MakeSandbox, Taken
from loadtests.load.peers import Peer
from loadtests.load.places import Listener, PlaceFailed, gateway_pool, no_counts, no_images
from loadtests.load.proc import ProcProbe
from loadtests.load.profile import Baseline, Images
from loadtests.load.sampling import Counts, Probe


class Server:
    """An existing server. Its parts' resource use is not visible, and they must not be killed."""

    kind = "server"
    breakable = False
    has_images = False
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
    async def pool(self, *, size: int, cpu: float | None, slots: bool) -> AsyncIterator[str | None]:
        async with gateway_pool(self.client, size=size, cpu=cpu, image=self.image) as name:
            yield name

    def cold_pool(self, cpu: float | None) -> AbstractAsyncContextManager[str | None]:
        return nullcontext()

    def images(self, wanted: Images | None) -> AbstractAsyncContextManager[list[str]]:
        return no_images(wanted, place=self.name)

    async def supplied(self) -> dict[str, int]:
        return {}

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

    def pods_exec(
        self, callers: int, *, command: Sequence[str], make: MakeSandbox
    ) -> AbstractAsyncContextManager[Callers | None]:
        return nullcontext()

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

    async def lose(self, box: SandboxInfo) -> bool:
        raise PlaceFailed(f"{self.name} is another's: its sandboxes are not killed")
