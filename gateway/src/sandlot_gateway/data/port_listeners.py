"""Opens the ports of exposures on the gateway's host, of TCP or UDP, and connects their clients to a sandbox's port."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from sandlot_contract.statuses import Status

from .conn import Connection
from .exposure import Exposure
from .pool import HttpPool
from .routes import Routes
from .tunnel import TunnelKind, open_tunnel

log = logging.getLogger("sandlot.expose")

_RETRY, _MAX_RETRY = 0.1, 5.0  # seconds until a port that was taken is tried again
OpenTunnel = Callable[[], Awaitable[Connection | None]]
Tenant = str


class Port(Protocol):
    """A port of the host."""

    async def open(self, host: str, port: int) -> int:
        """Return the bound port. Raises OSError."""
        ...

    async def close(self) -> None: ...


class PortListeners:
    """The open ports by exposure; `make` gets what opens a connection into the sandbox for each client, or None."""

    def __init__(
        self,
        make: Callable[[OpenTunnel, Tenant], Port],
        *,
        kind: TunnelKind,
        routes: Routes,
        pool: HttpPool,
        host: str,
    ) -> None:
        self._make = make
        self._kind: TunnelKind = kind
        self._routes = routes
        self._pool = pool
        self._host = host
        self._open: dict[str, Port] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def open(self, exposure: Exposure, ports: list[int]) -> int:
        """Listen on the first free one of `ports`. Raises OSError if none is free."""
        sandbox_id = exposure.sandbox_id

        async def tunnel() -> Connection | None:
            route = self._routes.find(sandbox_id)
            if route is None or route.status is not Status.RUNNING:
                return None
            self._routes.touched(sandbox_id)
            return await open_tunnel(pool=self._pool, route=route, port=exposure.port, kind=self._kind)

        failure: OSError | None = None
        for tried in ports:
            listener = self._make(tunnel, exposure.tenant)
            try:
                bound = await listener.open(self._host, tried)
            except OSError as error:
                failure = error
                continue
            self._open[exposure.id] = listener
            return bound
        raise failure or OSError("no port is configured")

    async def reopen(self, exposure: Exposure, port: int, *, wanted: Callable[[], bool]) -> None:
        """Listen on the port once it is free: of another exposure, whose end was reported first, it may not be yet."""
        pause = _RETRY
        while wanted():
            await self.closed()
            try:
                await self.open(exposure, [port])
            except OSError as error:
                if pause == _RETRY:
                    log.warning("cannot listen on port %s of an exposure: %s; trying again", port, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _MAX_RETRY)
            else:
                return

    def close(self, exposure_id: str) -> None:
        """Close a port, if it is open; its clients' connections end in the background."""
        listener = self._open.pop(exposure_id, None)
        if listener is not None:
            task = asyncio.get_running_loop().create_task(listener.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def closed(self) -> None:
        """Wait until all ports that are closing have closed."""
        if self._closing:
            await asyncio.wait(set(self._closing))

    async def close_all(self) -> None:
        for exposure_id in list(self._open):
            self.close(exposure_id)
        await self.closed()
