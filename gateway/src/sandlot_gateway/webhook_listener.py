"""Listens for sidecars' webhooks and links: one request a connection, with limited memory."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence

from sandlot_contract.ids import InstanceId

from sandlot_gateway.sidecar_tls import SidecarTls
from sandlot_gateway.webhook_connection import Handlers, LinkRequest, WebhookConnection
from sandlot_gateway.webhook_limits import Bounds, Budget, Connections
from sandlot_gateway.webhooks import Answer, WebhookFault

_BACKLOG = 4096  # asyncio calls listen() again, with 100 by default, which would refuse many sidecars at once


class WebhookListener:
    """`proof`, `receive`, `counted` and `link` are the `Handlers` of each connection."""

    def __init__(
        self,
        *,
        proof: Callable[[InstanceId, str], str | None],
        receive: Callable[[InstanceId, str, bytes], Answer],
        counted: Callable[[WebhookFault], None],
        link: Callable[[LinkRequest], None] | None = None,
        bounds: Bounds | None = None,
        tls: SidecarTls | None = None,
    ) -> None:
        self._tls = tls
        self._handlers = Handlers(proof, receive, counted, link)
        bounds = bounds or Bounds()
        self.budget = Budget(bounds)
        self.connections = Connections(bounds)
        self.port: int | None = None
        self._servers: list[asyncio.Server] = []

    async def open(self, sockets: Sequence[socket.socket]) -> None:
        """Start to accept; connections so far waited in the sockets' backlogs."""
        loop = asyncio.get_running_loop()
        for one in sockets:
            if one.family == socket.AF_UNIX:
                server = await loop.create_unix_server(self._connect, sock=one, backlog=_BACKLOG)
            else:
                self.port = one.getsockname()[1]
                server = await loop.create_server(self._connect, sock=one, backlog=_BACKLOG)
            self._servers.append(server)

    def _connect(self) -> asyncio.Protocol:
        connection = WebhookConnection(self._handlers, connections=self.connections, budget=self.budget)
        return connection if self._tls is None else self._tls.accepted(connection)

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for connection in list(self.connections.open):
            connection.cut()
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()
