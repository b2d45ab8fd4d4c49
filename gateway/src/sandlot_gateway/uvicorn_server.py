"""Ends a uvicorn server in two steps: first its connections, later its listening socket."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Iterator

import uvicorn
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.protocol import OPEN


class WebSocket(WebSocketsSansIOProtocol):
    """uvicorn's, of which `shutdown` may come twice, and while the client closes it: uvicorn's own raises then."""

    def shutdown(self) -> None:
        """Close the connection, which tells a client that has not begun that itself."""
        if self.transport.is_closing():
            return
        if self.handshake_complete and not self.close_sent and self.conn.state is not OPEN:
            self.stop_keepalive()
            self.transport.close()
            return
        super().shutdown()


class Server(uvicorn.Server):
    """uvicorn without its signal handlers, which would end the process by the signal instead of exit status 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def end_connections(self) -> None:
        """Send `Connection: close` with each response, so that clients close their connections themselves."""
        close = (b"connection", b"close")
        self.config.encoded_headers = [*self.config.encoded_headers, close]
        self.server_state.default_headers = [*self.server_state.default_headers, close]

    def drain_connections(self) -> None:
        """Close idle connections, and others with their response. New ones are accepted until `close`."""
        for connection in list(self.server_state.connections):
            connection.shutdown()

    def close(self, *, by: float) -> None:
        """Accept no more connections, and wait for responses `by` this time on the loop's clock at most."""
        self.config.timeout_graceful_shutdown = max(1, math.ceil(by - asyncio.get_running_loop().time()))
        self.should_exit = True
