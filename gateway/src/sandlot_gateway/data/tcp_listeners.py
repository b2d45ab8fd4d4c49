"""Opens the TCP ports of exposures on the gateway's host and connects their clients to a sandbox's port."""

from __future__ import annotations

import asyncio

from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status

from .bridge import PortListener
from .conn import Connection
from .pool import HttpPool
from .routes import Routes
from .tunnel import open_tunnel


class TcpListeners:
    """The TCP listeners by exposure."""

    def __init__(self, *, routes: Routes, pool: HttpPool, host: str) -> None:
        self._routes = routes
        self._pool = pool
        self.host = host
        self._listeners: dict[str, PortListener] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def open(self, exposure_id: str, ports: list[int], *, sandbox_id: SandboxId, port: int) -> int:
        """Listen on the first free one of `ports`; `port` is in the sandbox. Raises OSError if none is free."""

        async def tunnel() -> Connection | None:
            route = self._routes.find(sandbox_id)
            if route is None or route.status is not Status.RUNNING:
                return None
            self._routes.touched(sandbox_id)
            return await open_tunnel(pool=self._pool, route=route, port=port)

        failure: OSError | None = None
        for tried in ports:
            listener = PortListener(tunnel)
            try:
                bound = await listener.open(self.host, tried)
            except OSError as error:
                failure = error
                continue
            self._listeners[exposure_id] = listener
            return bound
        raise failure or OSError("no port is configured")

    def close(self, exposure_id: str) -> None:
        """Close a listener; its connections end in the background."""
        listener = self._listeners.pop(exposure_id, None)
        if listener is not None:
            task = asyncio.get_running_loop().create_task(listener.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def closed(self) -> None:
        """Wait until all listeners that are closing have closed."""
        if self._closing:
            await asyncio.wait(set(self._closing))

    async def close_all(self) -> None:
        for exposure_id in list(self._listeners):
            self.close(exposure_id)
        await self.closed()
