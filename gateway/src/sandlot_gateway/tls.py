"""Serves the application over TLS on a separate port, as HTTP/1.1 and HTTP/2; why granian: docs/adr/0005."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sandlot_contract.followed import follow

from sandlot_gateway import reuseport
from sandlot_gateway.control.audit import App
from sandlot_gateway.data.answers import Message, Receive, Scope, Send
from sandlot_gateway.stop_times import IN_ORDER

_log = logging.getLogger(__name__)

_READY_WAIT = 10.0
# Seconds for connections that are being opened to the socket of an earlier certificate, which would be reset: at least
# the first, and up to the second while the earlier server has not accepted all, as on a busy machine.
_OPEN_WITHIN, _ACCEPTED_WITHIN = 1.0, 10.0
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
        self._task: asyncio.Task[None] | None = None  # the server of the certificate in use
        # All that run: that one, the one of the earlier certificate with its open connections, and one being started.
        self._servers: dict[asyncio.Task[None], Any] = {}

    async def start(self) -> None:
        """Start serving. Raises OSError for a certificate or key that cannot be used, and for a port that is taken."""
        self._used = self._read()
        self._check()
        self._task = self._serve()
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
        tasks = list(self._servers)
        if not tasks:
            return
        for task in tasks:
            self._interrupt(task)
        await asyncio.wait(tasks, timeout=timeout)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _serve(self) -> asyncio.Task[None]:
        server = _server(
            self._app,
            host=self._host,
            port=self._port,
            cert=self._cert,
            key=self._key,
            backlog=self._backlog,
            keep_alive=self._keep_alive,
        )
        task = asyncio.create_task(server.serve())
        self._servers[task] = server
        task.add_done_callback(self._servers.pop)
        return task

    def _interrupt(self, task: asyncio.Task[None]) -> None:
        if task in self._servers:
            # Granian's name for "stop", with or without a signal.
            self._servers[task].signal_handler_interrupt()

    def _stopped(self, task: asyncio.Task[None]) -> None:
        if task is self._task:
            self._ended()

    async def _changed(self, found: tuple[bytes, bytes] | str) -> None:
        try:
            if isinstance(found, str):
                raise OSError(found)
            self._check()
            earlier = await self._listening()
            serving = await self._serve_beside(earlier)
        except OSError as error:
            self._failing(True)
            _log.error("cannot use the changed certificate: %s; the earlier one stays", error)
            return
        self._failing(False)
        serving.add_done_callback(self._stopped)
        before, self._task = self._task, serving
        await self._end(earlier)
        # Not earlier: a server that stops closes descriptors, and `_end` would replace what has their numbers by then.
        for task in self._servers:
            if task not in (before, serving):
                self._interrupt(task)

    async def _serve_beside(self, earlier: list[int]) -> asyncio.Task[None]:
        """Start a server on the port on which these sockets listen (granian sets SO_REUSEPORT). Raises OSError."""
        serving = self._serve()
        try:
            async with asyncio.timeout(_READY_WAIT):
                while not serving.done():
                    await asyncio.wait([serving], timeout=_FAILS_WITHIN)
                    if set(await self._listening()).difference(earlier):
                        break
            if serving.done():
                raise OSError(str(serving.exception() or "the server stopped"))
        except TimeoutError as error:
            self._interrupt(serving)
            raise OSError(f"the server does not listen after {_READY_WAIT:g} s") from error
        return serving

    async def _end(self, earlier: list[int]) -> None:
        """End the listening sockets of the earlier certificate once their connections are accepted."""
        try:
            reuseport.prefer_last(earlier)
            await asyncio.sleep(_OPEN_WITHIN)
            deadline = asyncio.get_running_loop().time() + _ACCEPTED_WITHIN - _OPEN_WITHIN
            while left := reuseport.queued(earlier):
                if asyncio.get_running_loop().time() > deadline:
                    raise OSError(f"{left} are not accepted after {_ACCEPTED_WITHIN:g} s")
                await asyncio.sleep(0.05)
        except OSError as error:
            # A client can try again; with an expired certificate it cannot.
            _log.warning("the change of the certificate may reset connections being opened: %s", error)
        try:
            reuseport.stop_listening(earlier)
        except OSError as error:
            self._failing(True)
            _log.error("cannot stop listening with the earlier certificate: %s; clients may get it", error)
        else:
            _log.info("the certificate %s changed: new connections get it", self._cert)

    async def _listening(self) -> list[int]:
        # In a thread: a gateway has up to 100,000 descriptors.
        return await asyncio.to_thread(reuseport.listening, self._host, self._port)

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
