"""Connects sandboxes of a group to each other's services: from one sidecar to the tunnel of another's."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from urllib.parse import parse_qs

from sandlot_contract.headers import GATEWAY
from sandlot_contract.ids import SandboxId
from sandlot_contract.sidecar import LINK_MAX_AGE, TCP_UPGRADE
from sandlot_contract.statuses import Status

from sandlot_gateway.core.gateways import OtherGateways
from sandlot_gateway.data.bridge import relay
from sandlot_gateway.data.conn import Connection
from sandlot_gateway.data.dial import keep_alive
from sandlot_gateway.data.errors import PoolError
from sandlot_gateway.data.pool import HttpPool
from sandlot_gateway.data.tunnel import Refused, open_tunnel
from sandlot_gateway.directory import Directory
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.tokens import Tokens
from sandlot_gateway.webhook_connection import LinkRequest

_log = logging.getLogger(__name__)

OPEN_TIMEOUT = 12.0  # seconds; a sidecar waits 15
MOST_FROM, MOST_TO = 256, 1024  # links of a sandbox at a time, from it and to its service
MOST, MOST_OF_TENANT = 4096, 2048  # links of this gateway: each takes two descriptors


class LinkRefused(Exception):
    """There is no connection. 503: another gateway may make it, or this one in a moment."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class ServiceLinks:
    """All links of this gateway. It keeps no state of groups: who may connect where is in the sandboxes' claims."""

    def __init__(
        self, *, directory: Directory, pool: HttpPool, others: OtherGateways | None, tokens: Tokens
    ) -> None:
        self._directory = directory
        self._pool = pool
        self._others = others
        self._tokens = tokens
        self._learning: dict[str, asyncio.Task[None]] = {}  # by tenant
        self._links: dict[asyncio.Task[None], set[SandboxId]] = {}
        self._counts: Counter[tuple[str, str]] = Counter()

    def accept(self, asked: LinkRequest) -> None:
        """Serve the request of a sidecar, which has shown who it is."""
        sock = asked.writer.get_extra_info("socket")
        if sock.family != socket.AF_UNIX:
            with suppress(OSError, ValueError):  # it is lost already
                keep_alive(sock)
        task = asyncio.create_task(self._serve(asked))
        self._links[task] = set()
        task.add_done_callback(self._links.pop)

    def sandbox_ended(self, sandbox_id: SandboxId) -> None:
        """Cut the links from and to this sandbox."""
        for task, ends in self._links.items():
            if sandbox_id in ends:
                task.cancel()

    async def close(self) -> None:
        """Cut all links."""
        tasks: list[asyncio.Task[None]] = [*self._links, *self._learning.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _serve(self, asked: LinkRequest) -> None:
        writer = asked.writer
        try:
            query = self._checked(asked)
            # Before anything is asked of others: code in a sandbox may ask for connections without end.
            with self._counted({("all", ""): MOST, ("from", asked.instance_id): MOST_FROM}):
                await self._connect(asked, query)
        except LinkRefused as refused:
            _log.debug("link refused: %s", refused, extra={"instance": asked.instance_id})
            head = f"HTTP/1.1 {refused.status} {refused}\r\n{GATEWAY}: {asked.proof}\r\n"
            writer.write(f"{head}Content-Length: 0\r\nConnection: close\r\n\r\n".encode())
            writer.close()
        finally:
            if not writer.is_closing():
                writer.transport.abort()

    async def _connect(self, asked: LinkRequest, query: Mapping[str, str]) -> None:
        """Find both ends, and carry until both have ended. Raises LinkRefused."""
        writer = asked.writer
        until = asyncio.get_running_loop().time() + OPEN_TIMEOUT
        try:
            async with asyncio.timeout_at(until):
                source, name, port = await self._source(asked, query)
                target = await self._target(source, name)
        except TimeoutError as error:
            raise LinkRefused(503, "the sandboxes of the group are not known yet") from error
        with self._counted({("tenant", source.tenant): MOST_OF_TENANT, ("to", target.id): MOST_TO}):
            task = asyncio.current_task()
            assert task is not None
            self._links[task] = {source.id, target.id}
            connection = await self._opened(target, port, until=until)
            head = f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {TCP_UPGRADE}\r\n"
            writer.write(f"{head}{GATEWAY}: {asked.proof}\r\n\r\n".encode())
            await relay(asked.reader, writer, connection)

    def _checked(self, asked: LinkRequest) -> Mapping[str, str]:
        """Return the request's query, which its sidecar has signed now. Raises LinkRefused."""
        if self._tokens.webhook_key(asked.instance_id, asked.signature, asked.target) is None:
            raise LinkRefused(401, "the request is not signed by the sandbox's sidecar")
        values = parse_qs(asked.target.partition(b"?")[2].decode("latin-1"))
        query = {name: found[0] for name, found in values.items()}
        at = query.get("at", "")
        # Whoever has read a request on its way could send it again.
        if not at.isdecimal() or len(at) > 15 or abs(time.time() - int(at)) > LINK_MAX_AGE:
            raise LinkRefused(401, "the request is too old, or the clocks of the nodes differ")
        return query

    async def _source(self, asked: LinkRequest, query: Mapping[str, str]) -> tuple[Sandbox, str, int]:
        """Return the sandbox that asks, and the service and port that it may connect to. Raises LinkRefused."""
        sandbox_id = SandboxId(query.get("sandbox", ""))
        await self._directory.appear(sandbox_id)
        source = self._directory.get(sandbox_id)
        if source is None:
            raise LinkRefused(503, "the sandbox is not known yet")
        if not source.live or source.instance_id != asked.instance_id:
            raise LinkRefused(404, "the sandbox is not of this sidecar")
        services, name, port = source.spec.services, query.get("service", ""), query.get("port", "")
        if services is None or not port.isdecimal() or int(port) not in services.ports.get(name, ()):
            raise LinkRefused(404, "the sandbox's group has no such service or port")
        return source, name, int(port)

    async def _target(self, source: Sandbox, name: str) -> Sandbox:
        """Return the sandbox that is the service of the source's group. Raises LinkRefused."""
        target = self._member(source, name)
        if target is None and self._others is not None:
            await self._learn_claims(self._others, source.tenant)
            target = self._member(source, name)
        if target is None or target.status is Status.PENDING:
            raise LinkRefused(503, "the service's sandbox is not known yet")
        if not target.live:
            raise LinkRefused(404, "the service's sandbox has ended")
        return target

    def _member(self, source: Sandbox, name: str) -> Sandbox | None:
        group = source.spec.group
        found = [] if group is None else self._directory.of_group(source.tenant, group.id)
        named = [one for one in found if one.spec.services is not None and one.spec.services.own == name]
        if sum(one.live for one in named) > 1:
            raise LinkRefused(409, "several sandboxes of the group are this service")
        return max(named, key=lambda one: one.live, default=None)

    async def _learn_claims(self, others: OtherGateways, tenant: str) -> None:
        """Ask the others for the tenant's sandboxes, once for all links that wait for them."""
        if tenant not in self._learning:
            task = self._learning[tenant] = asyncio.create_task(others.learn_claims(tenant))
            task.add_done_callback(lambda _: self._learning.pop(tenant))
        await asyncio.shield(self._learning[tenant])

    @contextmanager
    def _counted(self, limits: Mapping[tuple[str, str], int]) -> Iterator[None]:
        """Count the link while it lasts. Raises LinkRefused beyond a limit."""
        if any(self._counts[key] >= most for key, most in limits.items()):
            raise LinkRefused(429, "too many connections between the services of the group")
        self._counts.update(limits.keys())
        try:
            yield
        finally:
            for key in limits:
                self._counts[key] -= 1
                if not self._counts[key]:
                    del self._counts[key]

    async def _opened(self, target: Sandbox, port: int, *, until: float) -> Connection:
        """Open the tunnel into the target. Raises LinkRefused."""
        route = self._directory.find(target.id)
        if route is None or route.status is not Status.RUNNING:
            raise LinkRefused(404, "the service's sandbox has ended")
        try:
            async with asyncio.timeout_at(until):
                return await open_tunnel(pool=self._pool, route=route, port=port)
        except Refused as error:
            raise LinkRefused(502, "nothing listens on the service's port") from error
        except (PoolError, TimeoutError) as error:
            raise LinkRefused(502, "the service's sandbox cannot be reached") from error
