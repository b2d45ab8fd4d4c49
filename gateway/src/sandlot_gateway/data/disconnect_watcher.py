"""Detects that the client left during a request, and sends the rest of the body to the upstream."""

from __future__ import annotations

import asyncio

from .answers import Receive
from .conn import Connection
from .disconnects import PATIENCE


class DisconnectWatcher:
    """Closes the upstream connection when the client leaves, which tells the sidecar.

    If `chunked` is not None, the request's body is still arriving, and is first written to the upstream, with
    back-pressure.
    """

    __slots__ = ("_chunked", "_connection", "_done", "_receive", "_task", "_timer", "body_sent", "gone")

    def __init__(self, receive: Receive, connection: Connection, *, chunked: bool | None = None) -> None:
        self._receive = receive
        self._connection = connection
        self._chunked = chunked
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._done = False
        self.gone = False
        self.body_sent = chunked is None
        if chunked is None:
            self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._begin)
        else:
            self._begin()

    def finish(self) -> None:
        """Stop watching; another request may use the connection from here on."""
        self._done = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    async def ended(self) -> None:
        """Wait until the watching task has ended."""
        task = self._task
        if task is not None:
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()

    def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                break
            if self._done:
                return
            if not self.body_sent:
                await self._forward(message.get("body", b""), last=not message.get("more_body", False))
        if not self._done:  # the server also reports a disconnect after a finished response
            self.gone = True
            self._connection.close()

    async def _forward(self, body: bytes, *, last: bool) -> None:
        connection = self._connection
        if body:
            connection.write(b"%x\r\n%b\r\n" % (len(body), body) if self._chunked else body)
        if last:
            if self._chunked:
                connection.write(b"0\r\n\r\n")
            self.body_sent = True
        await connection.drain()
