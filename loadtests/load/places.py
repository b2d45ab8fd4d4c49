"""What a load test needs of a place, and what several places have in common."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from sandlot import AsyncClient, AsyncPools, AsyncSandbox
from sandlot.errors import NotFound
from sandlot.models import SandboxInfo

from loadtests.load.baselines import Baselines, Callers, MakeSandbox, Taken
from loadtests.load.peers import Peer
from loadtests.load.profile import Baseline, Images
from loadtests.load.sampling import Counts, Probe

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
