"""A streamed response whose pieces leave in groups, at the client's speed."""

from __future__ import annotations

from sandlot_gateway.data.answers import Receive, Send

_GROUP = 256 << 10  # bytes that leave together; more wait for the client


class GroupedResponse:
    """Collects pieces until `flush`, which waits for a client that does not read."""

    def __init__(self, send: Send, receive: Receive, *, request_id: bytes, content_type: bytes) -> None:
        self._send = send
        self._head: list[tuple[bytes, bytes]] | None = [
            (b"content-type", content_type),
            (b"x-request-id", request_id),
        ]
        self._pieces: list[bytes] = []
        self._size = 0
        self.receive = receive
        self.verdict = b""

    @property
    def begun(self) -> bool:
        """Whether the client has been sent anything."""
        return self._head is None

    @property
    def is_full(self) -> bool:
        return self._size >= _GROUP

    @property
    def has_pieces(self) -> bool:
        return bool(self._pieces)

    def add_piece(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)

    async def flush(self) -> None:
        """Send what was added."""
        await self._begin()
        if self._pieces:
            await self._send({"type": "http.response.body", "body": self._take(), "more_body": True})

    async def finish(self) -> None:
        """Send the rest, and the end of the response."""
        await self._begin()
        await self._send({"type": "http.response.body", "body": self._take()})

    async def _begin(self) -> None:
        if self._head is not None:
            head, self._head = self._head, None
            await self._send({"type": "http.response.start", "status": 200, "headers": head})

    def _take(self) -> bytes:
        body = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        return body
