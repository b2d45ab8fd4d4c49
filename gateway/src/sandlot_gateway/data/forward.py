"""Forwards one HTTP request to an upstream and streams its response back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..tracing.trace import Trace, now
from .answers import Message, Receive, Send
from .disconnect_watcher import DisconnectWatcher
from .disconnects import ReadAhead, cancel_on_disconnect
from .errors import ClientGone, UpstreamError
from .pool import Dial, HttpPool
from .wire import Headers


class Truncated(Exception):
    """Raised when the upstream failed inside its response: the client's connection must be closed."""


@dataclass(slots=True)
class RequestHead:
    """The lines of a request without the length of its body, which is known last."""

    lines: list[bytes]  # joined as they are
    length: bytes | None  # the client's Content-Length
    method: str

    def finish(self, *, body: bytes, more: bool) -> tuple[bytes, bool | None]:
        """Return the bytes to send first, and how the rest follows: True chunked, False by length, None no rest."""
        lines = self.lines
        if more:
            if self.length is None:
                lines.append(b"transfer-encoding: chunked\r\n\r\n")
                if body:
                    lines.append(b"%x\r\n%b\r\n" % (len(body), body))
                return b"".join(lines), True
            lines.append(b"content-length: %b\r\n\r\n" % self.length)
            lines.append(body)
            return b"".join(lines), False
        if body or self.length is not None or self.method in ("POST", "PUT", "PATCH"):
            lines.append(b"content-length: %d\r\n\r\n" % len(body))
            lines.append(body)
        else:
            lines.append(b"\r\n")
        return b"".join(lines), None


async def forward(
    *,
    pool: HttpPool,
    key: str,
    dial_with: Dial | None = None,
    head: RequestHead,
    first: Message,
    receive: Receive,
    send: Send,
    edit: Callable[[int, Headers, bytes | None], tuple[int, Headers, bytes | None]] | None = None,
    trace: Trace | None = None,
) -> tuple[int, Headers]:
    """Forward one request, whose first body message is `first`. Return status and headers as sent.

    `edit` may change the response's status, headers and whole body (None unless it has arrived already). Raises
    DialError and UpstreamError before the response has started, Truncated after, ClientGone at any time. Notes in
    `trace` when it had a connection.
    Cancellation closes the upstream connection.
    """
    body = first.get("body", b"")
    more: bool = first.get("more_body", False)
    connection = pool.take(key)
    if connection is None:
        if trace is not None:
            trace.connecting = now()
        # A slow sandbox makes this slow: a client that leaves meanwhile must not run a command.
        receive = ahead = ReadAhead(receive)
        connecting = pool.acquire(key, dial_with, known_alive=True)
        connection = await cancel_on_disconnect(connecting, ahead, more=more, undo=pool.release)
    if trace is not None:
        trace.connected = now()
    watch: DisconnectWatcher | None = None
    started = False
    try:
        data, chunked = head.finish(body=body, more=more)
        connection.begin(data, no_body=head.method == "HEAD")
        watch = DisconnectWatcher(receive, connection, chunked=chunked)
        response = await connection.head()
        status, headers = response.status, response.headers
        if status in (204, 304):
            headers = [header for header in headers if header[0] != b"content-length"]
        whole = connection.take() if response.complete else None
        if edit is not None:
            status, headers, whole = edit(status, headers, whole)
        started = True
        await send({"type": "http.response.start", "status": status, "headers": headers})
        if whole is not None:
            await send({"type": "http.response.body", "body": whole})
        else:
            while not response.complete or response.pieces:
                piece = await connection.read()
                await send({"type": "http.response.body", "body": piece, "more_body": not response.complete})
        return status, headers
    except UpstreamError as error:
        if watch is not None and watch.gone:
            raise ClientGone from error
        if started:
            raise Truncated(str(error)) from error
        raise
    finally:
        if watch is None:
            pool.release(connection, reusable=False)
        else:
            watch.finish()
            pool.release(connection, reusable=watch.body_sent and not watch.gone)
            await watch.ended()
