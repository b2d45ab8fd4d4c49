"""Serves the application over TLS on a separate port, as HTTP/1.1 and HTTP/2; why granian: docs/adr/0005."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import socket
import ssl
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sandlot_contract.followed import follow

from sandlot_gateway.control.audit import App
from sandlot_gateway.data.answers import Message, Receive, Scope, Send
from sandlot_gateway.stop_times import IN_ORDER

_log = logging.getLogger(__name__)

_READY_WAIT = 10.0
_SO_ATTACH_REUSEPORT_CBPF = 51
_OPEN_WITHIN = 1.0  # seconds for connections that are being opened to the socket of an earlier certificate
_FAILS_WITHIN = 1.0  # seconds in which a server that cannot use its certificate stops
_STREAMS = 1000  # concurrent streams per HTTP/2 connection; Prime's clients open another one from 90 on
# Requests in flight in total. The data plane has its own limits, which answer; this one only makes requests wait.
_IN_FLIGHT = 100_000


class TlsServer:
    """A TLS server: `start` returns when it accepts connections; `ended` is called if it stops by itself.

    `keep_alive`: seconds that an idle HTTP/1 connection stays open. `failing` is told whether the last change of the
    certificate could not be used.
    """

    def __init__(
        self,
        app: App,
        *,
        host: str,
        port: int,
        cert: Path,
        key: Path,
        backlog: int,
        keep_alive: int,
        ended: Callable[[], None],
        failing: Callable[[bool], None] = lambda failing: None,
    ) -> None:
        self._app = app
        self._host = host
        self._port = port
        self._cert = cert
        self._key = key
        self._backlog = backlog
        self._keep_alive = keep_alive
        self._ended = ended
        self._failing = failing
        self._used: tuple[bytes, bytes] | str = ""
        self._server: Any = None
        self._task: asyncio.Task[None] | None = None
        # The server of the earlier certificate, with its open connections.
        self._earlier: tuple[Any, asyncio.Task[None]] | None = None

    async def start(self) -> None:
        """Start serving. Raises OSError for a certificate or key that cannot be used, and for a port that is taken."""
        self._used = self._read()
        self._check()
        self._server, self._task = self._serve()
        try:
            async with asyncio.timeout(_READY_WAIT):
                while not await self._answers():
                    if self._task.done():
                        raise OSError(str(self._task.exception() or "the server stopped"))
                    await asyncio.sleep(0.01)
        except (OSError, TimeoutError) as error:
            await self.stop(timeout=IN_ORDER.tls)
            raise OSError(
                f"cannot listen with TLS on {self._host} port {self._port}: {error}; choose another --tls-port"
            ) from error
        self._task.add_done_callback(self._stopped)

    async def follow(self) -> None:
        """Serve new connections with the files' certificate each time that it changes, until cancelled.

        Files that cannot be used are logged once, and the earlier certificate stays. Open connections keep theirs until
        the change after this one.
        """
        await follow(self._read, self._changed, used=self._used, failing=self._failing)

    async def stop(self, *, timeout: float) -> None:
        """Wait up to `timeout` seconds for connections to close, then cut them. One that was cancelled may come again."""
        if self._task is None:
            return
        tasks = {self._task}
        self._server.signal_handler_interrupt()  # granian's name for "stop", with or without a signal
        if self._earlier is not None:
            self._earlier[0].signal_handler_interrupt()
            tasks.add(self._earlier[1])
        await asyncio.wait(tasks, timeout=timeout)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._task = None

    def _serve(self) -> tuple[Any, asyncio.Task[None]]:
        server = _server(
            self._app,
            host=self._host,
            port=self._port,
            cert=self._cert,
            key=self._key,
            backlog=self._backlog,
            keep_alive=self._keep_alive,
        )
        return server, asyncio.create_task(server.serve())

    def _stopped(self, task: asyncio.Task[None]) -> None:
        if task is self._task:
            self._ended()

    async def _changed(self, found: tuple[bytes, bytes] | str) -> None:
        earlier, task = self._server, self._task
        try:
            if isinstance(found, str):
                raise OSError(found)
            self._check()
            listening = _listening(self._port)
            # On the same port (granian sets SO_REUSEPORT), before the earlier one stops listening.
            server, serving = self._serve()
            await asyncio.wait([serving], timeout=_FAILS_WITHIN)
            if serving.done():
                raise OSError(str(serving.exception() or "the server stopped"))
        except OSError as error:
            self._failing(True)
            _log.error("cannot use the changed certificate: %s; the earlier one stays", error)
            return
        self._failing(False)
        serving.add_done_callback(self._stopped)
        if self._earlier is not None:
            self._earlier[0].signal_handler_interrupt()
        if task is not None:
            self._earlier = earlier, task
        self._server, self._task = server, serving
        for descriptor in listening:
            _prefer_last(descriptor)
        await asyncio.sleep(_OPEN_WITHIN)
        _stop_listening(listening)
        _log.info("the certificate %s changed: new connections get it", self._cert)

    def _check(self) -> None:
        """Raise OSError if the files are no certificate with its key."""
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._cert, self._key)
        except OSError as error:
            raise OSError(
                f"cannot load --tls-cert {self._cert} and --tls-key {self._key}: {error}"
            ) from error

    def _read(self) -> tuple[bytes, bytes] | str:
        try:
            return self._cert.read_bytes(), self._key.read_bytes()
        except OSError as error:
            return f"{error.filename}: {error.strerror}"

    async def _answers(self) -> bool:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._host, self._host)
        try:
            _, writer = await asyncio.open_connection(host, self._port)
        except OSError:
            return False
        writer.close()
        return True


def _listening(port: int) -> list[int]:
    """Return this process's descriptors of TCP sockets that listen on the port."""
    found: list[int] = []
    for name in os.listdir("/proc/self/fd"):
        # It may be no socket, or that of the listing itself, which is gone.
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as sock:
            if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and _port(sock) == port:
                found.append(int(name))
    return found


def _port(sock: socket.socket) -> int | None:
    return sock.getsockname()[1] if sock.family in (socket.AF_INET, socket.AF_INET6) else None


def _prefer_last(descriptor: int) -> None:
    """Send new connections to the last of two sockets on this one's port; closing one resets those in its queue."""
    choice = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 1))  # BPF_RET: the second one
    program = struct.pack("HP", 1, ctypes.addressof(choice))
    with socket.socket(fileno=os.dup(descriptor)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_REUSEPORT_CBPF, program)


def _stop_listening(descriptors: list[int]) -> None:
    """End these listening sockets of a server, and leave its connections alone.

    Granian can only stop with its connections, and Prime's clients lose their requests by that: httpx rejects what an
    HTTP/2 connection receives after its GOAWAY.
    """
    with socket.socket(socket.AF_UNIX) as idle:
        # Not closed, since the server uses these numbers: they become a socket that nobody connects to.
        idle.bind("")
        idle.listen(1)
        idle.setblocking(False)
        for descriptor in descriptors:
            os.dup2(idle.fileno(), descriptor, inheritable=False)


def _close_last(app: App) -> App:
    """Wrap an app so that closes are sent: granian delays a WebSocket's close while a receive is pending."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await app(scope, receive, send)
            return
        close: Message | None = None

        async def keep_close(message: Message) -> None:
            nonlocal close
            if message["type"] == "websocket.close":
                close = message
            else:
                await send(message)

        await app(scope, receive, keep_close)
        if close is not None:
            await send(close)

    return served


def _server(app: App, *, host: str, port: int, cert: Path, key: Path, backlog: int, keep_alive: int) -> Any:
    # Imported here: it takes 20 MB, which a gateway without TLS does not need.
    from granian.constants import HTTPModes, Interfaces, SSLProtocols
    from granian.http import HTTP1Settings, HTTP2Settings
    from granian.log import LogLevels
    from granian.server.embed import Server

    return Server(
        _close_last(app),
        address=host,
        port=port,
        interface=Interfaces.ASGINL,
        http=HTTPModes.auto,
        http1_settings=HTTP1Settings(header_read_timeout=keep_alive * 1000),
        http2_settings=HTTP2Settings(max_concurrent_streams=_STREAMS),
        backlog=backlog,
        backpressure=_IN_FLIGHT,
        ssl_cert=cert,
        ssl_key=key,
        ssl_protocol_min=SSLProtocols.tls12,
        log_level=LogLevels.error,
        log_dictconfig={"handlers": {}, "loggers": {"_granian": {"propagate": True}}},
    )
