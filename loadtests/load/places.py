"""What a load test needs of a place, and the first of them: a local stack of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol

import psutil
from sandlot import AsyncClient, AsyncPools, AsyncSandbox
from sandlot.errors import NotFound
from sandlot.models import SandboxInfo

from loadtests.code_env.plain_processes import PATH
from loadtests.load.baselines import Baselines, Callers, MakeSandbox, Taken
from loadtests.load.dataset import layout, tag, unpacked
from loadtests.load.peers import Peer
from loadtests.load.proc import ProcProbe
from loadtests.load.profile import Baseline, Images
from loadtests.load.sampling import Counts, Probe
from loadtests.processes import with_mark
from tests.stack import Stack

FILL_SECONDS = 600.0


class PlaceFailed(Exception):
    """The place cannot be set up, or a killed part does not recover; the message says why."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What profiles need that a place does not have by itself: images of its own, checkpoints, SandboxFusion's API."""

    images: bool = False
    checkpoints: bool = False
    fusion: bool = False


NOTHING = Needs()


@dataclass(frozen=True, slots=True)
class Listener:
    """The gateways as code in a sandbox reaches them: (host, port) of each, and a path that needs a credential."""

    addresses: list[tuple[str, int]]
    path: str


class Place(Protocol):
    """A place for a load test; `async with` sets it up and restores it.

    `kind` is the value of a bound's `where`, `every` the seconds between samples of its parts, `breakable` whether its
    parts may be killed, `has_images` whether it provides those of a profile.
    """

    kind: str
    breakable: bool
    has_images: bool
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

    def pool(self, *, size: int, cpu: float | None, slots: bool) -> AbstractAsyncContextManager[str | None]:
        """Fill a pool, with `slots` one for all images; return the name that its creates give, if they give one."""
        ...

    def cold_pool(self, cpu: float | None) -> AbstractAsyncContextManager[str | None]:
        """Return the name that cold creates give, if they give one."""
        ...

    def images(self, wanted: Images | None) -> AbstractAsyncContextManager[list[str]]:
        """Provide these images; return their names, the most popular first. Raises PlaceFailed."""
        ...

    async def supplied(self) -> dict[str, int]:
        """Return what the place has made for images so far: `images_prepared`, `bytes_pulled`, `image_bytes` on disk, `pods`."""
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

    def pods_exec(
        self, callers: int, *, command: Sequence[str], make: MakeSandbox
    ) -> AbstractAsyncContextManager[Callers | None]:
        """Prepare so many callers of the API server's own `pods/exec`, each for its share of pods; None without one."""
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

    async def lose(self, box: SandboxInfo) -> bool:
        """Kill the sidecar of a sandbox, as a failure of its node would; False if it has ended. Raises PlaceFailed."""
        ...


class Local:
    """A private stack with one gateway, ended with all its sandboxes."""

    kind = "local"
    breakable = True
    has_images = True
    image: str | None = "host"
    every = 1.0
    name = "a local stack"

    def __init__(self, needs: Needs = NOTHING) -> None:
        """Where images are needed, begin without unpacked ones, and leave none on the machine."""
        self._directory = tempfile.TemporaryDirectory(prefix="sandlot-load-")
        self._cache = Path(self._directory.name) / "cache"
        env = {"PATH": PATH}
        if needs.images:
            env["SANDLOT_CACHE"] = str(self._cache)
        options = ("--fusion", "host") if needs.fusion else ()
        self._stack = Stack(Path(self._directory.name) / "state", env=env, options=options)
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
    async def pool(self, *, size: int, cpu: float | None, slots: bool) -> AsyncIterator[str | None]:
        async with gateway_pool(self.client, size=size, cpu=cpu, image=self.image) as name:
            # A create that names a pool gets the pool's image; without, it gets a slot of its size.
            yield None if slots else name

    def cold_pool(self, cpu: float | None) -> AbstractAsyncContextManager[str | None]:
        return nullcontext()

    @asynccontextmanager
    async def images(self, wanted: Images | None) -> AsyncIterator[list[str]]:
        if wanted is None:
            yield []
            return
        path = await asyncio.to_thread(layout, wanted.count)
        yield [f"oci:{path}:{tag(number)}" for number in range(wanted.count)]

    async def supplied(self) -> dict[str, int]:
        return await asyncio.to_thread(unpacked, self._cache)

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

    def pods_exec(
        self, callers: int, *, command: Sequence[str], make: MakeSandbox
    ) -> AbstractAsyncContextManager[Callers | None]:
        return nullcontext()

    async def peer(self, found: Taken, plan: Baseline, box: AsyncSandbox, peer: Peer) -> None:
        # Importing aiohttp takes a fifth of a second, and only --peers needs it.
        from loadtests.load import peers_here

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

    async def lose(self, box: SandboxInfo) -> bool:
        return await asyncio.to_thread(self._lose, box.id)

    def _lose(self, sandbox_id: str) -> bool:
        for claim in self._stack.state_dir.glob("instances/*/claim.json"):
            with contextlib.suppress(OSError):  # removed since
                if sandbox_id in claim.read_text():
                    for pid in with_mark(str(claim.parent)):
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                    return True
        return False


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


@asynccontextmanager
async def no_images(wanted: Images | None, *, place: str) -> AsyncIterator[list[str]]:
    """Provide no images. Raises PlaceFailed if the profile wants some."""
    if wanted is not None:
        raise PlaceFailed(f"{place} gets no images from a load test")
    yield []
