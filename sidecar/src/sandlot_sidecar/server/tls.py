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

_LOG_PAUSE = 10.0  # seconds between two lines: user code can reach the port, and could fill the log


class Tls:
    """Wraps connections in TLS with the files' certificate of that moment."""

    def __init__(self, directory: str) -> None:
        """Read the files. Raises BadTlsFiles."""
        self._files = TlsFiles(directory, failing=_files_failing)
        self._logged_at = 0.0
        self._unlogged = 0

    def serving(self, connect: Callable[[], asyncio.Protocol]) -> Callable[[], TlsStream]:
        """Return the protocol factory that gives each of the factory's protocols a TLS stream."""
        return lambda: TlsStream(
            connect(), self._files.server(), client_name=GATEWAY_NAME, failed=self._refused
        )

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

    def _refused(self, reason: str, peer: Any) -> None:
        now = time.monotonic()
        if self._logged_at and now - self._logged_at < _LOG_PAUSE:
            self._unlogged += 1
            return
        log.event("tls_refused", reason=reason, peer=peer and peer[0], unlogged=self._unlogged)
        self._logged_at, self._unlogged = now, 0


def _files_failing(reason: str | None) -> None:
    log.event("tls_files", state="renewed" if reason is None else "bad", reason=reason)
