"""Reads the bodies of requests within a size, a time and the memory of all, and answers before they have arrived."""

from __future__ import annotations

import asyncio

from fastapi import Response

from sandlot_gateway.data.answers import Message, Receive, Scope, Send

BODY_TIMEOUT = 30.0  # seconds for a body to arrive
_SWALLOW_TIMEOUT = 2.0


class BodyTooLarge(Exception):
    """Raised for a body that is larger than any may be."""


class NoRoom(Exception):
    """Raised when the bodies of requests hold all the memory that they may; a later request may find some."""


class Account:
    """Counts nothing, as for a body of which many fit into memory; a subclass counts."""

    def add(self, size: int) -> None:
        """Count bytes that have arrived. Raises NoRoom."""

    def close(self) -> None:
        """Give back all bytes; it may be called again."""


async def read(scope: Scope, receive: Receive, *, limit: int, account: Account) -> bytes | None:
    """Read the whole body; return None if the client has disconnected. Raises BodyTooLarge, NoRoom, TimeoutError."""
    length = next((value for key, value in scope["headers"] if key == b"content-length"), b"")
    if length.isdigit() and int(length) > limit:
        raise BodyTooLarge
    pieces: list[bytes] = []
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            return await _read(receive, pieces, limit=limit, account=account)
    finally:
        pieces.clear()  # an error that is being answered would hold them


async def _read(receive: Receive, pieces: list[bytes], *, limit: int, account: Account) -> bytes | None:
    size = 0
    refusal: NoRoom | None = None
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        piece = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise BodyTooLarge
        if refusal is None:
            try:
                # As it comes, not as it is announced: a slow sender holds only what it sent.
                account.add(len(piece))
                pieces.append(piece)
            except NoRoom as error:
                # Clients read no answer before they have sent all, so the rest is read, and dropped.
                refusal = error
                pieces.clear()
                account.close()
        if not message.get("more_body"):
            if refusal is not None:
                raise refusal
            return b"".join(pieces)


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body, and then what the client sends."""
    held: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    del body

    async def replayed() -> Message:
        return held.pop() if held else await receive()

    return replayed


async def answer_early(answer: Response, receive: Receive, send: Send, *, limit: int) -> None:
    """Answer before the body, drop what arrives of it for a moment, then close the connection."""
    await send({"type": "http.response.start", "status": answer.status_code, "headers": answer.raw_headers})
    await send({"type": "http.response.body", "body": bytes(answer.body), "more_body": True})
    # Closing while the client still sends would reset the connection and lose the response.
    await swallow(receive, limit=limit)
    await send({"type": "http.response.body", "body": b""})


async def swallow(receive: Receive, *, limit: int) -> None:
    """Read and drop up to `limit` bytes for a moment; a client that sends more gets a reset."""
    try:
        async with asyncio.timeout(_SWALLOW_TIMEOUT):
            while limit > 0:
                message = await receive()
                if message["type"] == "http.disconnect" or not message.get("more_body"):
                    return
                limit -= len(message.get("body", b""))
    except TimeoutError:
        return
