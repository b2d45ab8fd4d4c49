"""Servers on loopback that a store may meet: one that answers as told, and one that cuts connections to a real server."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.s3.relay import Forwarding

SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


@contextmanager
def answering(
    answer: Callable[[str, str], tuple[int, bytes]], *, headers: tuple[str, ...] = ("ETag", "Last-Modified")
) -> Iterator[str]:
    """The URL of a server that answers each method and path as the call says."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _any(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            status, body = answer(self.command, self.path)
            self.send_response(status)
            for name, value in (("ETag", '"0123"'), ("Last-Modified", self.date_time_string())):
                if name in headers:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _any

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Cutting(Forwarding):
    """Forwards connections to a port. After `after` bytes of answers each of the next `cuts` connections is cut."""

    def __init__(self, port: int, *, after: int, cuts: int) -> None:
        self._after = after
        self.cuts_left = cuts
        super().__init__(port)

    def _forward(self, client: socket.socket) -> None:
        sent = 0
        with client, socket.create_connection(("127.0.0.1", self._to)) as server:
            while True:
                for one in select.select([client, server], [], [])[0]:
                    try:
                        data = one.recv(65536)
                        if not data:
                            return
                        (server if one is client else client).sendall(data)
                    except OSError:
                        return
                    sent += len(data) if one is server else 0
                    if sent > self._after and self.cuts_left > 0:
                        self.cuts_left -= 1
                        return


@contextmanager
def cutting(port: int, *, after: int, cuts: int) -> Iterator[Cutting]:
    relay = Cutting(port, after=after, cuts=cuts)
    try:
        yield relay
    finally:
        relay.close()
