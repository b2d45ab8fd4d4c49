"""Listens in the sandbox's network for connections to the other services of its group, and carries them to the gateway."""

from __future__ import annotations

import asyncio
import functools
import socket
import time

from ...core.errors import SidecarError
from .. import log
from ..carrying import carry, reset
from . import opening

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..executor_client import ExecutorClient
    from ..gateway import Gateway

_LOG_PAUSE = 10.0  # seconds between two lines, since code in the sandbox could fill the log
MOST = 256  # connections of a sandbox at a time; further ones are reset
PIECE = 64 << 10
BACKLOG = 128


class Listeners:
    """The listeners of one owner. Each connection is reset unless the gateway has connected it to the service."""

    def __init__(self, gateway: Gateway, *, sandbox_id: str) -> None:
        self._gateway = gateway
        self._sandbox_id = sandbox_id
        self._servers: list[asyncio.Server] = []
        self._flows: set[asyncio.Task[None]] = set()
        self._logs_from = 0.0

    async def open(self, executor: ExecutorClient, services: list[dict[str, Any]]) -> None:
        """Listen at the address and ports of each service. Raises ExecutorError, ExecutorGone and OSError."""
        for service in services:
            ports = service["ports"]
            if not ports:
                continue
            _, fds = await executor.ask(
                "listen", descriptors=len(ports), address=service["address"], ports=ports
            )
            sockets = [socket.socket(fileno=fd) for fd in fds]
            try:
                for port in ports:
                    accept = functools.partial(self._accept, service["name"], port)
                    sock = sockets[0]
                    sock.setblocking(False)
                    self._servers.append(
                        await asyncio.start_server(accept, sock=sock, limit=PIECE, backlog=BACKLOG)
                    )
                    del sockets[0]
            finally:
                for sock in sockets:
                    sock.close()

    def close(self) -> None:
        """Stop listening, and cut all connections."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        for flow in self._flows:
            flow.cancel()

    def _accept(
        self, name: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if len(self._flows) >= MOST or not self._servers:
            reset(writer)
            return
        flow = asyncio.get_running_loop().create_task(self._serve(name, port, reader, writer))
        self._flows.add(flow)
        flow.add_done_callback(self._flows.discard)

    async def _serve(
        self, name: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            link = await opening.link(self._gateway, sandbox_id=self._sandbox_id, name=name, port=port)
            await carry((reader, writer), link)
        except SidecarError as error:
            self._log(name, port, str(error))
        except (OSError, EOFError):
            return  # one end has disconnected
        finally:
            reset(writer)

    def _log(self, name: str, port: int, reason: str) -> None:
        if (now := time.monotonic()) >= self._logs_from:
            self._logs_from = now + _LOG_PAUSE
            log.event("link_failed", service=name, port=port, error=reason)
