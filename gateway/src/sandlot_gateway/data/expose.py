"""Exposures: ports of a sandbox reachable from outside, by path (HTTP) or on a port of the gateway's host (TCP)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from .bridge import PortListener
from .pool import HttpPool
from .routes import Route, Routes
from .tunnel import open_tunnel

log = logging.getLogger("sandlot.expose")

MAX_PER_SANDBOX = 64
MAX_NAME = 50  # characters


class ExposeError(Exception):
    """An exposure that cannot be made; `field` names the argument at fault, or is None when the host is."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class Exposure:
    """`id` is the right to use it: 144 random bits, so whoever has the address needs no other credential."""

    id: str
    sandbox_id: str
    tenant: str
    port: int  # in the sandbox
    name: str | None
    protocol: Literal["HTTP", "TCP"]
    created_at: float  # Unix seconds
    listen_host: str | None = None  # TCP only
    listen_port: int | None = None  # TCP only

    @property
    def path(self) -> str:
        """Where an HTTP exposure is, below the gateway's address."""
        return f"/expose/{self.id}/"


class Exposures:
    """The exposures of all sandboxes; with a `store` they survive the gateway (TCP ones on the same port).

    `ports` is where TCP listeners may be; without it the kernel picks one.
    """

    def __init__(
        self,
        *,
        routes: Routes,
        pool: HttpPool,
        listen_host: str = "127.0.0.1",
        ports: Iterable[int] | None = None,
        store: Path | None = None,
    ) -> None:
        self._routes = routes
        self._pool = pool
        self._listen_host = listen_host
        self._ports = None if ports is None else list(ports)
        self._store = store
        self._all: dict[str, Exposure] = {}
        self._listeners: dict[str, PortListener] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Bring back what the store holds. A TCP port that somebody else has by now is given up, with a log line."""
        if self._store is None or not self._store.exists():
            return
        try:
            rows = json.loads(self._store.read_text())
            known = [Exposure(**row) for row in rows]
        except (ValueError, TypeError) as error:
            log.warning("the exposures in %s cannot be read: %s", self._store, error)
            return
        for exposure in known:
            if exposure.protocol == "TCP":
                try:
                    await self._listen(exposure, [exposure.listen_port or 0])
                except OSError as error:
                    log.warning("port %s of an exposure is lost: %s", exposure.listen_port, error)
                    continue
            self._all[exposure.id] = exposure

    def prune(self) -> None:
        """Drop the exposures of sandboxes that are unknown or ended; once after a restart has found the sandboxes."""
        for sandbox_id in {exposure.sandbox_id for exposure in self._all.values()}:
            route = self._routes.find(sandbox_id)
            if route is None or route.status not in ("PENDING", "RUNNING"):
                self.sandbox_ended(sandbox_id)

    async def add(
        self, sandbox_id: str, tenant: str, port: int, name: str | None = None, protocol: str = "HTTP"
    ) -> Exposure:
        """Make one; for TCP the listener is open when this returns. Raises ExposeError."""
        if not 1 <= port <= 65535:
            raise ExposeError("port must be between 1 and 65535", field="port")
        if name is not None and len(name) > MAX_NAME:
            raise ExposeError(f"name must have at most {MAX_NAME} characters", field="name")
        kind = protocol.upper()
        if kind not in ("HTTP", "TCP"):
            raise ExposeError("protocol must be HTTP or TCP", field="protocol")
        if len(self.list(tenant, sandbox_id=sandbox_id)) >= MAX_PER_SANDBOX:
            raise ExposeError(f"a sandbox has at most {MAX_PER_SANDBOX} exposures")
        exposure = Exposure(
            id=secrets.token_urlsafe(18),
            sandbox_id=sandbox_id,
            tenant=tenant,
            port=port,
            name=name,
            protocol="HTTP" if kind == "HTTP" else "TCP",
            created_at=time.time(),
        )
        if exposure.protocol == "TCP":
            try:
                bound = await self._listen(exposure, self._ports or [0])
            except OSError as error:
                raise ExposeError(f"no free port on the gateway's host: {error}") from error
            exposure = Exposure(
                **{**asdict(exposure), "listen_host": self._listen_host, "listen_port": bound}
            )
        self._all[exposure.id] = exposure
        self._save()
        return exposure

    async def remove(self, exposure_id: str, tenant: str) -> bool:
        """Close one with its connections. False: this tenant has no such exposure."""
        exposure = self._all.get(exposure_id)
        if exposure is None or exposure.tenant != tenant:
            return False
        self._drop(exposure)
        self._save()
        if self._closing:
            await asyncio.wait(set(self._closing))
        return True

    def list(self, tenant: str, *, sandbox_id: str | None = None) -> list[Exposure]:
        """A tenant's exposures, oldest first."""
        return [
            exposure
            for exposure in self._all.values()
            if exposure.tenant == tenant and sandbox_id in (None, exposure.sandbox_id)
        ]

    def find(self, exposure_id: str) -> Exposure | None:
        return self._all.get(exposure_id)

    def sandbox_ended(self, sandbox_id: str) -> None:
        """Close all of a sandbox's exposures; returns at once, their connections end in the background."""
        gone = [exposure for exposure in self._all.values() if exposure.sandbox_id == sandbox_id]
        for exposure in gone:
            self._drop(exposure)
        if gone:
            self._save()

    async def close(self) -> None:
        """Stop listening; the store keeps everything for the next start."""
        for listener in list(self._listeners.values()):
            self._close_later(listener)
        self._listeners.clear()
        if self._closing:
            await asyncio.wait(set(self._closing))

    def tunnel_key(self, route: Route, port: int) -> str:
        """The pool's key of kept-alive connections through this sandbox's tunnel to one port."""
        return f"{route.sandbox_id}:{port}@{route.address}"

    def _drop(self, exposure: Exposure) -> None:
        del self._all[exposure.id]
        listener = self._listeners.pop(exposure.id, None)
        if listener is not None:
            self._close_later(listener)
        route = self._routes.find(exposure.sandbox_id)
        if route is not None:
            self._pool.forget(self.tunnel_key(route, exposure.port))

    def _close_later(self, listener: PortListener) -> None:
        task = asyncio.get_running_loop().create_task(listener.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _listen(self, exposure: Exposure, ports: list[int]) -> int:
        """Open the first port that is free; raises OSError when none is."""

        async def tunnel():
            route = self._routes.find(exposure.sandbox_id)
            if route is None or route.status != "RUNNING":
                return None
            self._routes.touched(exposure.sandbox_id)
            return await open_tunnel(route=route, port=exposure.port, settings=self._pool.dial_settings)

        failure: OSError | None = None
        for port in ports:
            listener = PortListener(tunnel)
            try:
                bound = await listener.open(self._listen_host, port)
            except OSError as error:
                failure = error
                continue
            self._listeners[exposure.id] = listener
            return bound
        raise failure or OSError("no port is configured")

    def _save(self) -> None:
        if self._store is None:
            return
        temporary = self._store.with_name(f"{self._store.name}.{os.getpid()}.new")
        try:
            temporary.touch(mode=0o600)
            temporary.write_text(json.dumps([asdict(exposure) for exposure in self._all.values()]))
            temporary.replace(self._store)
        except OSError as error:
            log.warning("the exposures cannot be written to %s: %s", self._store, error)
            with contextlib.suppress(OSError):
                temporary.unlink()
