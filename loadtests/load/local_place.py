"""A place to load: a local stack of the load test's own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from types import TracebackType

import psutil
from sandlot import AsyncClient, AsyncSandbox
from sandlot.models import SandboxInfo

from loadtests.code_env.plain_processes import PATH
from loadtests.load.baselines import Baselines, Callers, MakeSandbox, Taken
from loadtests.load.dataset import layout, tag, unpacked
from loadtests.load.peers import Peer
from loadtests.load.places import NOTHING, Listener, Needs, PlaceFailed, gateway_pool, no_counts
from loadtests.load.proc import ProcProbe
from loadtests.load.profile import Baseline, Images
from loadtests.load.sampling import Counts, Probe
from loadtests.processes import with_mark
from tests.stack import Stack


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
