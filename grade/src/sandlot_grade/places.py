"""Provides the places where a demo runs, a private stack or a deployment, and checks each for leftovers."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from pathlib import Path
from types import TracebackType
from typing import Protocol

from sandlot import AsyncClient, AsyncPools, AsyncSandbox
from sandlot.config import named_endpoint
from sandlot.errors import ConfigError, NotFound

from sandlot_grade.leftovers import Leftovers
from sandlot_grade.rollout import PROGRAM
from sandlot_grade.stack import PrivateStack
from sandlot_grade.verify import Alternatives

END_SECONDS = 60.0  # seconds for a deployment to end what was deleted


class Place(Protocol):
    """A place, prepared and restored by `async with`; `image`, `pool` and `labels` are for its sandboxes.

    `instead` maps a result to others that are right, too.
    """

    name: str
    image: str
    pool: str
    labels: tuple[str, ...]
    instead: Alternatives

    @property
    def client(self) -> AsyncClient: ...

    async def __aenter__(self) -> Place: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def left(self) -> list[str]:
        """Return a line for each leftover or wrong end, after the block."""
        ...


class OnThisMachine:
    """A private stack, ended with all its sandboxes."""

    name = "local stack"
    image = "host"
    pool = "demo"
    labels: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.instead: Alternatives = {}
        self._stack = PrivateStack()
        outside = (Path(PROGRAM), Path("/var/tmp/filler"))
        self._leftovers = Leftovers(state_dir=self._stack.state_dir, outside=outside)
        self._watcher: asyncio.Task[None] | None = None

    @property
    def client(self) -> AsyncClient:
        return self._stack.client

    async def __aenter__(self) -> OnThisMachine:
        await self._stack.__aenter__()
        self._watcher = asyncio.create_task(self._leftovers.watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
        await self._stack.__aexit__(kind, error, trace)
        if kind is not None:
            self._stack.remove()

    async def left(self) -> list[str]:
        try:
            found = await self._leftovers.left()
        finally:
            words = self._stack.last_words(limit=400)
            self._stack.remove()
        if self._stack.exit_code != 0:
            found.append(f"the stack ended with exit code {self._stack.exit_code}: {words}")
        return found


class Deployed:
    """The server at SANDLOT_URL; its own pool and label keep the demo apart from other users.

    Raises ConfigError if SANDLOT_URL is not set.
    """

    def __init__(self, *, image: str) -> None:
        # Under gVisor processes use the sandbox kernel's memory: a fork bomb may reach that limit first.
        self.instead: Alternatives = {"pids_limit": frozenset({"oom"})}
        server = named_endpoint(url=None, api_key=None)
        if server is None:
            raise ConfigError("--image: no deployment to run on: set SANDLOT_URL and SANDLOT_API_KEY")
        self.pool = f"demo-{secrets.token_hex(3)}"
        self.labels = (self.pool,)
        self.image = image
        self.name = server.url
        self._client = AsyncClient(url=server.url, api_key=server.api_key)

    @property
    def client(self) -> AsyncClient:
        return self._client

    async def __aenter__(self) -> Deployed:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with contextlib.suppress(NotFound):
                await AsyncPools(client=self._client).delete(self.pool)
            await AsyncSandbox.delete_many(labels=self.labels, client=self._client)
        finally:
            if kind is not None:
                await self._client.aclose()

    async def left(self) -> list[str]:
        deadline = asyncio.get_running_loop().time() + END_SECONDS
        async with self._client:
            while True:
                boxes = await AsyncSandbox.list(labels=self.labels, client=self._client)
                pools = [
                    pool for pool in await AsyncPools(client=self._client).list() if pool.name == self.pool
                ]
                found = [f"sandbox {box.id} ({box.status})" for box in boxes]
                found += [f"pool {pool.name}" for pool in pools]
                if not found or asyncio.get_running_loop().time() > deadline:
                    return found
                await asyncio.sleep(0.5)
