"""The response of a streaming RPC: events in envelopes, sent in groups, at the client's speed."""

from __future__ import annotations

import asyncio
from typing import Any

from sandlot_contract.frames import END as END_FRAME

from sandlot_gateway.data.answers import Receive, Send
from sandlot_gateway.data.conn import Connection
from sandlot_gateway.data.disconnects import wait_for_disconnect
from sandlot_gateway.data.errors import ClientGone, UpstreamError
from sandlot_gateway.data.frames import FrameReader

from . import envelope, events
from .failures import EnvdFailure
from .sidecar_call import SidecarCall

_GROUP = 256 << 10  # bytes of events that leave together; more wait for the client


class RpcStream:
    """Collects messages until `flush`, which waits for a client that does not read."""

    def __init__(self, send: Send, receive: Receive, *, request_id: bytes) -> None:
        self._send = send
        self._head: list[tuple[bytes, bytes]] | None = [
            (b"content-type", b"application/connect+json"),
            (b"x-request-id", request_id),
        ]
        self._pieces: list[bytes] = []
        self._size = 0
        self.receive = receive
        self.verdict = b""

    @property
    def begun(self) -> bool:
        """Whether the client has been sent anything: an error then ends the stream."""
        return self._head is None

    @property
    def is_full(self) -> bool:
        return self._size >= _GROUP

    def add(self, document: Any) -> None:
        piece = envelope.envelope(document)
        self._pieces.append(piece)
        self._size += len(piece)

    async def flush(self) -> None:
        """Send what was added."""
        await self._begin()
        if self._pieces:
            await self._send({"type": "http.response.body", "body": self._take(), "more_body": True})

    async def end(self, failure: EnvdFailure | None = None) -> None:
        """Send the rest and the end of the stream, with an error if there is one."""
        last = {} if failure is None else {"error": failure.rpc_document()}
        self._pieces.append(envelope.envelope(last, flags=envelope.END))
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


async def copied(
    call: SidecarCall, connection: Connection, stream: RpcStream, told: events.ProcessEvents
) -> None:
    """Copy an op's frames to the client as events, and note the op's verdict.

    Raises ClientGone, UpstreamError, WireError, and EnvdFailure for an end that is not the command's own.
    """
    watching = asyncio.get_running_loop().create_task(wait_for_disconnect(stream.receive))

    def cut(_: object) -> None:
        connection.close()  # which tells the sidecar

    watching.add_done_callback(cut)
    try:
        last = await _copied(connection, stream, told)
    except UpstreamError as error:
        if watching.done():
            raise ClientGone from error
        raise
    finally:
        gone = watching.done()
        watching.remove_done_callback(cut)  # another request may use the connection from here on
        watching.cancel()
        call.pool.release(connection, reusable=not gone)
        await asyncio.wait([watching])
    if last is None:
        if gone:
            raise ClientGone
        raise UpstreamError("the op's stream closed before its end frame")
    op = events.document(last)
    stream.verdict = str(op.get("verdict") or "").encode()  # first: some verdicts are failures to the client
    for event in told.of_end(op, sandbox_id=call.route.sandbox_id):
        stream.add(event)


async def _copied(connection: Connection, stream: RpcStream, told: events.ProcessEvents) -> bytes | None:
    """Return the payload of the last frame; None if the stream closed before it."""
    reader = FrameReader()
    last: bytes | None = None
    while True:
        if connection.waits or stream.is_full:
            await stream.flush()
        data = await connection.read()
        if not data:
            return last
        for kind, payload in reader.feed(data):
            if kind == END_FRAME:
                last = payload
            else:
                for event in told.of_frame(kind, payload):
                    stream.add(event)
