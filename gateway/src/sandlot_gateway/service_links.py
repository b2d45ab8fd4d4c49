"""Connects sandboxes of a group to each other's services: from one sidecar to the tunnel of another's."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs

from sandlot_contract.headers import GATEWAY
from sandlot_contract.ids import SandboxId
from sandlot_contract.sidecar import TCP_UPGRADE
from sandlot_contract.statuses import Status

from sandlot_gateway.core.gateways import OtherGateways
from sandlot_gateway.data.bridge import relay
from sandlot_gateway.data.conn import Connection
from sandlot_gateway.data.errors import PoolError
from sandlot_gateway.data.pool import HttpPool
from sandlot_gateway.data.tunnel import Refused, open_tunnel
from sandlot_gateway.directory import Directory
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.webhook_listener import LinkRequest

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

    def __init__(self, *, directory: Directory, pool: HttpPool, others: OtherGateways | None) -> None:
        self._directory = directory
        self._pool = pool
        self._others = others
        self._links: dict[asyncio.Task[None], set[SandboxId]] = {}
        self._counts: Counter[tuple[str, str]] = Counter()

    def accept(self, asked: LinkRequest) -> None:
        """Serve the request of a sidecar, which has shown who it is."""
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
        tasks = list(self._links)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _serve(self, asked: LinkRequest) -> None:
        writer = asked.writer
        try:
            until = asyncio.get_running_loop().time() + OPEN_TIMEOUT
            try:
                async with asyncio.timeout_at(until):
                    source, name, port = await self._source(asked)
                    target = await self._target(source, name)
            except TimeoutError as error:
                raise LinkRefused(503, "the sandboxes of the group are not known yet") from error
            with self._counted(source, target):
                connection = await self._opened(target, port, until=until)
                head = (
                    f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {TCP_UPGRADE}\r\n"
                )
                writer.write(f"{head}{GATEWAY}: {asked.proof}\r\n\r\n".encode())
                await relay(asked.reader, writer, connection)
        except LinkRefused as refused:
            _log.debug("link refused: %s", refused, extra={"instance": asked.instance_id})
            head = f"HTTP/1.1 {refused.status} {refused}\r\n{GATEWAY}: {asked.proof}\r\n"
            writer.write(f"{head}Content-Length: 0\r\nConnection: close\r\n\r\n".encode())
            writer.close()
        finally:
            if not writer.is_closing():
                writer.transport.abort()

    async def _source(self, asked: LinkRequest) -> tuple[Sandbox, str, int]:
        """Return the sandbox that asks, and the service and port that it may connect to. Raises LinkRefused."""
        query = {name: values[0] for name, values in parse_qs(asked.query.decode("latin-1")).items()}
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
            await self._others.learn_claims(source.tenant)
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
        return max(named, key=lambda one: one.live, default=None)

    @contextmanager
    def _counted(self, source: Sandbox, target: Sandbox) -> Iterator[None]:
        """Count the link at both ends while it lasts. Raises LinkRefused beyond a limit."""
        limits = {
            ("all", ""): MOST,
            ("tenant", source.tenant): MOST_OF_TENANT,
            ("from", source.id): MOST_FROM,
            ("to", target.id): MOST_TO,
        }
        if any(self._counts[key] >= most for key, most in limits.items()):
            raise LinkRefused(429, "too many connections between the services of the group")
        task = asyncio.current_task()
        assert task is not None
        self._links[task] = {source.id, target.id}
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
