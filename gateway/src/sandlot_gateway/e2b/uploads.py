"""Reads requests' bodies: whole, or as a file that streams to the sandbox's sidecar, at the sidecar's speed."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator

from sandlot_gateway.data.answers import Message, Receive
from sandlot_gateway.data.errors import ClientGone
from sandlot_gateway.data.forward import RequestHead, forward

from .envelope import MAX_MESSAGE
from .failures import EnvdFailure, invalid, of_sidecar
from .sidecar_call import SidecarCall

_PIECE = 64 << 10  # bytes of one step of decompression
_MOST_TOLD = 64 << 10  # bytes of a sidecar's answer to a write


async def body_pieces(receive: Receive) -> AsyncIterator[bytes]:
    """Yield a request's body. Raises ClientGone if the client leaves before its end."""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        if piece := message.get("body", b""):
            yield piece
        if not message.get("more_body", False):
            return


async def whole_body(receive: Receive, *, more: int = 0) -> bytes:
    """Read a body. Raises ClientGone, and EnvdFailure for one that is too large."""
    pieces: list[bytes] = []
    size = 0
    async for piece in body_pieces(receive):
        size += len(piece)
        if size > MAX_MESSAGE + more:
            raise EnvdFailure(
                "resource_exhausted", f"the request is larger than {MAX_MESSAGE} bytes", status=413
            )
        pieces.append(piece)
    return b"".join(pieces)


async def unpacked(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the content of a body compressed with gzip, in small pieces. Raises EnvdFailure."""
    unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        async for piece in pieces:
            while piece and not unpacker.eof:
                if data := unpacker.decompress(piece, _PIECE):
                    yield data
                    await asyncio.sleep(0)  # else no other request is served while content is dropped
                piece = unpacker.unconsumed_tail
        while data := unpacker.decompress(unpacker.unconsumed_tail, _PIECE):
            yield data
            await asyncio.sleep(0)
    except zlib.error as error:
        raise invalid("body", f"is not valid gzip: {error}") from error
    if not unpacker.eof:
        raise invalid("body", "the gzip stream ended before its end")


async def write_file(call: SidecarCall, path: str, content: AsyncIterator[bytes]) -> None:
    """Write a file and the directories above it; one whose content fails leaves nothing.

    Raises what `content` raises, EnvdFailure, DialError, UpstreamError.
    """
    if not path:
        raise invalid("path", "is required: the path to write")
    source, told = _Source(content), _Told()
    target = f"/v1/files?{call.file_query(path=path, parents=1)}"
    lines = [b"PUT %b HTTP/1.1\r\nhost: sidecar\r\n" % target.encode()]
    lines += [b"%b: %b\r\n" % header for header in call.headers]
    first: Message = {"type": "http.request", "body": b"", "more_body": True}
    try:
        await forward(
            pool=call.pool,
            key=call.route.address,
            head=RequestHead(lines, None, "PUT"),
            first=first,
            receive=source,
            send=told,
        )
    except ClientGone:
        if source.error is not None:
            raise source.error from None
        raise
    finally:
        await source.close()
    if told.status != 200:
        raise of_sidecar(told.status, told.body, call.route.sandbox_id)


class _Source:
    """An ASGI `receive` over an iterator: its failure is a client that left, so that the sidecar drops the file."""

    def __init__(self, content: AsyncIterator[bytes]) -> None:
        self._content = content
        self._coming: asyncio.Task[bytes | None] | None = None
        self._ended = False
        self.error: BaseException | None = None

    async def __call__(self) -> Message:
        if self._ended:
            await asyncio.get_running_loop().create_future()  # the answer comes next
        # `forward` cancels a look at the next piece and asks for it again; a cancel would end the iterator itself.
        if self._coming is None:
            self._coming = asyncio.create_task(self._next())
        coming = self._coming
        try:
            piece = await asyncio.shield(coming)
        except (ClientGone, EnvdFailure) as error:
            self.error = error
            return {"type": "http.disconnect"}
        self._coming = None
        if piece is None:
            self._ended = True
            return {"type": "http.request", "body": b"", "more_body": False}
        return {"type": "http.request", "body": piece, "more_body": True}

    async def close(self) -> None:
        """End a wait for a piece that nobody takes any more."""
        if self._coming is not None:
            self._coming.cancel()
            await asyncio.wait([self._coming])
            if not self._coming.cancelled():
                self._coming.exception()  # retrieved: what `forward` raised is told

    async def _next(self) -> bytes | None:
        return await anext(self._content, None)


class _Told:
    """An ASGI `send` that keeps a small answer."""

    def __init__(self) -> None:
        self.status = 0
        self.body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif len(self.body) < _MOST_TOLD:
            self.body += message.get("body", b"")
