"""Keeps exposures: ports of a sandbox reachable by path (HTTP) or on a port of the gateway's host."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status

from ..atomic_file import write_atomic
from ..tasks import Tasks
from .bridge import PortListener
from .exposure import ExposeError, Exposure, checked
from .pool import HttpPool
from .port_listeners import PortListeners
from .routes import Routes
from .tunnel import tunnel_key
from .udp_limits import Observer
from .udp_port import UdpPort, UdpPorts

log = logging.getLogger("sandlot.expose")

MAX_PER_SANDBOX = 64
_TRIES = 8  # ports to try before a create of a TCP or UDP exposure fails
_PATIENCE = 2.0  # seconds to wait for an exposure of another gateway, which takes some 30 ms


class Shared(Protocol):
    """The exposures that several gateways share."""

    def new_id(self) -> str: ...

    def may_exist(self, exposure_id: str) -> bool:
        """Return whether a gateway generated this id."""
        ...

    def subscribe(self, told: Callable[[SandboxId, list[Exposure]], None]) -> None:
        """Call `told` with all exposures of a sandbox each time that they change."""

    async def put(self, exposure: Exposure) -> bool:
        """Store an exposure; return False if another one has taken its port."""
        ...

    async def take(self, exposure: Exposure) -> None: ...


class Exposures:
    """The exposures of all sandboxes; with a `store` they survive a restart, on the same port.

    `ports` are those for TCP and UDP; without them the kernel picks one. `shared` replaces `store` when several
    gateways run: each then serves all exposures, on the same port everywhere, and TCP and UDP need `ports`.
    """

    def __init__(
        self,
        *,
        routes: Routes,
        pool: HttpPool,
        listen_host: str = "127.0.0.1",
        ports: Mapping[str, Iterable[int]] | None = None,
        store: Path | None = None,
        shared: Shared | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._routes = routes
        self._pool = pool
        self._host = listen_host
        self._udp = UdpPorts(observer)
        listeners = partial(PortListeners, routes=routes, pool=pool, host=listen_host)
        udp = listeners(partial(UdpPort, self._udp), kind="udp")
        self._listeners = {"TCP": listeners(lambda tunnel, _: PortListener(tunnel), kind="tcp"), "UDP": udp}
        self._ports = {kind: list((ports or {}).get(kind, ())) for kind in self._listeners}
        self._store = store if shared is None else None
        self._shared = shared
        self._unconfirmed: set[str] = set()  # stored by this gateway, not yet reported back
        self._removed: dict[str, SandboxId] = {}  # id -> sandbox: a late report must not restore one of these
        self._awaited: dict[str, asyncio.Event] = {}
        if shared is not None:
            shared.subscribe(self._told)
        self._all: dict[str, Exposure] = {}
        self._tasks = Tasks()

    async def start(self) -> None:
        """Restore the stored exposures. One whose port is taken now is dropped, with a log line."""
        if self._store is None or not self._store.exists():
            return
        try:
            rows = json.loads(self._store.read_text())
            known = [Exposure(**row) for row in rows]
        except (ValueError, TypeError) as error:
            log.warning("cannot read the exposures in %s: %s; starting without them", self._store, error)
            return
        for exposure in known:
            if exposure.protocol in self._listeners:
                try:
                    await self._listen(exposure, [exposure.listen_port or 0])
                except OSError as error:
                    log.warning(
                        "cannot reopen port %s: %s; its exposure is removed", exposure.listen_port, error
                    )
                    continue
            self._all[exposure.id] = exposure

    def prune(self) -> None:
        """Drop the exposures of unknown or ended sandboxes; call once after a restart, when sandboxes are known."""
        if self._shared is not None:
            return  # the shared store reports live sandboxes only
        for sandbox_id in {exposure.sandbox_id for exposure in self._all.values()}:
            route = self._routes.find(sandbox_id)
            if route is None or route.status not in (Status.PENDING, Status.RUNNING):
                self.sandbox_ended(sandbox_id)

    async def add(
        self, sandbox_id: SandboxId, tenant: str, port: int, name: str | None = None, protocol: str = "HTTP"
    ) -> Exposure:
        """Create an exposure; its port is open when this returns. Raises ExposeError."""
        kind = checked(port, name=name, protocol=protocol)
        if len(self.list(tenant, sandbox_id=sandbox_id)) >= MAX_PER_SANDBOX:
            raise ExposeError(f"a sandbox has at most {MAX_PER_SANDBOX} exposures: remove one first")
        exposure = Exposure(
            id=secrets.token_urlsafe(18) if self._shared is None else self._shared.new_id(),
            sandbox_id=sandbox_id,
            tenant=tenant,
            port=port,
            name=name,
            protocol=kind,
            created_at=time.time(),
        )
        if self._shared is not None:
            return await self._add_shared(exposure, self._shared)
        if exposure.protocol in self._listeners:
            try:
                bound = await self._listen(exposure, self._ports[exposure.protocol] or [0])
            except OSError as error:
                raise ExposeError(
                    f"no free port on the gateway's host: {error}; remove an exposure, or free a port"
                ) from error
            exposure = replace(exposure, listen_host=self._host, listen_port=bound)
        self._all[exposure.id] = exposure
        self._save()
        return exposure

    async def remove(self, exposure_id: str, tenant: str) -> bool:
        """Close an exposure and its connections; return False if this tenant has no such exposure."""
        exposure = self._all.get(exposure_id)
        if exposure is None or exposure.tenant != tenant:
            return False
        if self._shared is not None:
            await self._shared.take(exposure)
            self._removed[exposure.id] = exposure.sandbox_id
            if exposure.id not in self._all:
                return True  # the removal was reported meanwhile
        self._drop(exposure)
        self._save()
        for listeners in self._listeners.values():
            await listeners.closed()
        return True

    def list(self, tenant: str, *, sandbox_id: SandboxId | None = None) -> list[Exposure]:
        """Return a tenant's exposures, oldest first."""
        return [
            exposure
            for exposure in self._all.values()
            if exposure.tenant == tenant and sandbox_id in (None, exposure.sandbox_id)
        ]

    def find(self, exposure_id: str) -> Exposure | None:
        return self._all.get(exposure_id)

    async def found(self, exposure_id: str) -> Exposure | None:
        """Find an exposure; wait for one that another gateway has just created."""
        known = self._all.get(exposure_id)
        if known is not None or self._shared is None or exposure_id in self._removed:
            return known
        if not self._shared.may_exist(exposure_id):
            return None
        event = self._awaited.setdefault(exposure_id, asyncio.Event())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await event.wait()
        if self._awaited.get(exposure_id) is event:
            del self._awaited[exposure_id]
        return self._all.get(exposure_id)

    def sandbox_ended(self, sandbox_id: SandboxId) -> None:
        """Close all exposures of a sandbox; their connections end in the background."""
        gone = [exposure for exposure in self._all.values() if exposure.sandbox_id == sandbox_id]
        for exposure in gone:
            self._drop(exposure)
        for exposure_id in [each for each, owner in self._removed.items() if owner == sandbox_id]:
            del self._removed[exposure_id]
        if gone:
            self._save()

    async def close(self) -> None:
        """Stop listening; stored exposures return with the next start."""
        await self._tasks.close()
        for listeners in self._listeners.values():
            await listeners.close_all()
        self._udp.turns.close()

    async def _add_shared(self, exposure: Exposure, shared: Shared) -> Exposure:
        """Store the exposure, on a port that is free here and that no other gateway takes at the same moment."""
        ports: list[int | None] = [None]
        kind = exposure.protocol
        if kind in self._listeners:
            taken = {each.listen_port for each in self._all.values()}
            free = [port for port in self._ports[kind] if port not in taken]
            if not self._ports[kind]:
                raise ExposeError(
                    f"this server has no ports for {kind}: ask the operator to set {kind.lower()}_ports",
                    field="protocol",
                )
            ports = [*random.sample(free, k=min(len(free), _TRIES))]
        for port in ports:
            if port is not None:
                try:
                    await self._listen(exposure, [port])
                except OSError:
                    continue
                exposure = replace(exposure, listen_host=self._host, listen_port=port)
            self._all[exposure.id] = exposure
            self._unconfirmed.add(exposure.id)
            kept = False
            try:
                kept = await shared.put(exposure)
            finally:
                if not kept and exposure.id in self._all:
                    self._drop(exposure)
            if kept:
                return exposure
        raise ExposeError(
            f"no port for {kind} is free: remove an exposure, or ask the operator for more {kind.lower()}_ports"
        )

    def _told(self, sandbox_id: SandboxId, exposures: list[Exposure]) -> None:
        """Apply a report of all exposures that gateways have made for a sandbox."""
        ids = {exposure.id for exposure in exposures}
        for exposure in [each for each in self._all.values() if each.sandbox_id == sandbox_id]:
            if exposure.id not in ids and exposure.id not in self._unconfirmed:
                self._drop(exposure)
        for exposure in exposures:
            self._unconfirmed.discard(exposure.id)
            if exposure.id in self._all or exposure.id in self._removed:
                continue
            self._all[exposure.id] = exposure
            if exposure.listen_port is not None:
                self._tasks.spawn(self._listen_too(exposure, exposure.listen_port))
            event = self._awaited.pop(exposure.id, None)
            if event is not None:
                event.set()

    async def _listen_too(self, exposure: Exposure, port: int) -> None:
        listeners = self._listeners[exposure.protocol]
        await listeners.reopen(exposure, port, wanted=lambda: self._all.get(exposure.id) is exposure)
        if exposure.id not in self._all:
            self._close_port(exposure)

    def _drop(self, exposure: Exposure) -> None:
        del self._all[exposure.id]
        self._unconfirmed.discard(exposure.id)
        self._close_port(exposure)
        route = self._routes.find(exposure.sandbox_id)
        if route is not None:
            self._pool.forget(tunnel_key(route, exposure.port))

    async def _listen(self, exposure: Exposure, ports: list[int]) -> int:
        return await self._listeners[exposure.protocol].open(exposure, ports)

    def _close_port(self, exposure: Exposure) -> None:
        if exposure.protocol in self._listeners:
            self._listeners[exposure.protocol].close(exposure.id)

    def _save(self) -> None:
        if self._store is None:
            return
        rows = [asdict(exposure) for exposure in self._all.values()]
        try:
            write_atomic(self._store, json.dumps(rows).encode())
        except OSError as error:
            log.warning(
                "cannot write the exposures to %s: %s; they will not survive a restart", self._store, error
            )
