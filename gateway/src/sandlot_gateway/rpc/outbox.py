"""Buffers a response between Connect and the server, so that related events leave in one write."""

from __future__ import annotations

from ..data.answers import Message, Receive, Send


class Outbox:
    """An ASGI `send` that buffers the response until `flush` or its end.

    A short command's start, output and end arrive together from the sidecar. Sending them one by one would cost the
    gateway and the client five more system calls and wake-ups.
    """

    __slots__ = ("_head", "_pieces", "_send", "status")

    def __init__(self, send: Send) -> None:
        self._send = send
        self._head: Message | None = None
        self._pieces: list[bytes] = []
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._head = message
            self.status = message["status"]
            return
        body = message.get("body", b"")
        if body:
            self._pieces.append(body)
        if not message.get("more_body", False):
            await self._finish()

    async def flush(self) -> None:
        """Send what is buffered; wait for a client that does not read."""
        if self._head is not None:
            head, self._head = self._head, None
            await self._send(head)
        if self._pieces:
            await self._send({"type": "http.response.body", "body": self._take(), "more_body": True})

    async def _finish(self) -> None:
        body = self._take()
        if self._head is not None:
            head, self._head = self._head, None
            head["headers"] = [*head.get("headers", ()), (b"content-length", b"%d" % len(body))]
            await self._send(head)
        await self._send({"type": "http.response.body", "body": body})

    def _take(self) -> bytes:
        pieces = self._pieces
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        return body


class Inbox:
    """An ASGI `receive` that returns a body that was read already, then waits for a disconnect."""

    __slots__ = ("_body", "_receive", "gone")

    def __init__(self, receive: Receive, *, body: bytes | None) -> None:
        self._receive = receive
        self._body = body
        self.gone = False

    async def __call__(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.gone = True
        return message
