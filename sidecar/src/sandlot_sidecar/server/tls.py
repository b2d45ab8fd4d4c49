"""TLS of the sidecar's port and of its webhooks, where the config has it; imported only then, since ssl takes memory."""

from __future__ import annotations

import asyncio
import time

from sandlot_contract.sidecar import GATEWAY_NAME
from sandlot_contract.tls_faults import is_tls, reason_of
from sandlot_contract.tls_files import BadTlsFiles, TlsFiles
from sandlot_contract.tls_stream import TlsStream

from . import log

__all__ = ["BadTlsFiles", "Tls"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from typing import Any

    from .connection import Connection

_LOG_PAUSE = 10.0  # seconds between two lines: user code can reach the port, and could fill the log


class Tls:
    """Wraps connections in TLS with the files' certificate of that moment."""

    def __init__(self, directory: str) -> None:
        """Read the files. Raises BadTlsFiles."""
        self._files = TlsFiles(directory, failing=_files_failing)
        self._logs_from: dict[bool, float] = {}  # by whether the peer is in the sandbox's network

    def serving(self, connect: Callable[[], Connection]) -> Callable[[], TlsStream]:
        """Return the protocol factory that gives each of the factory's protocols a TLS stream."""

        def wrapped() -> TlsStream:
            connection = connect()

            def refused(reason: str, peer: Any) -> None:
                self._refused(reason, peer, inside=connection.inside)

            return TlsStream(connection, self._files.server(), client_name=GATEWAY_NAME, failed=refused)

        return wrapped

    async def open(self, sock: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return the streams of a connected socket to a gateway."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        stream = TlsStream(protocol, self._files.client(), server_name=GATEWAY_NAME)
        await loop.create_connection(lambda: stream, sock=sock)
        return reader, asyncio.StreamWriter(stream, protocol, reader, loop)

    def reason_of(self, error: Exception) -> str | None:
        """Return why gateway and sidecar do not accept each other, or None if it was something else."""
        return f"TLS: {reason_of(error)}" if is_tls(error) else None

    def _refused(self, reason: str, peer: Any, *, inside: bool) -> None:
        """Log it; code in the sandbox (`inside`) must not hide the lines about gateways."""
        now = time.monotonic()
        if now < self._logs_from.get(inside, 0.0):
            return
        self._logs_from[inside] = now + _LOG_PAUSE
        log.event("tls_refused", reason=reason, peer=peer and peer[0], inside=inside)


def _files_failing(reason: str | None) -> None:
    log.event("tls_files", state="renewed" if reason is None else "bad", reason=reason)
