"""The response of a streaming RPC: events in envelopes, sent in groups, at the client's speed."""

from __future__ import annotations

from typing import Any

from sandlot_contract.frames import END as END_FRAME

from sandlot_gateway.data.answers import Receive, Send
from sandlot_gateway.data.conn import Connection
from sandlot_gateway.data.errors import ClientGone, UpstreamError
from sandlot_gateway.data.frames import FrameReader

from . import envelope, events
from .client_watch import cut_without_client
from .failures import EnvdFailure
from .grouped_response import GroupedResponse
from .sidecar_call import SidecarCall


class RpcStream(GroupedResponse):
    def __init__(self, send: Send, receive: Receive, *, request_id: bytes) -> None:
        super().__init__(send, receive, request_id=request_id, content_type=b"application/connect+json")

    def add(self, document: Any) -> None:
        self.add_piece(envelope.envelope(document))

    async def end(self, failure: EnvdFailure | None = None) -> None:
        """Send the rest and the end of the stream, with an error if there is one."""
        last = {} if failure is None else {"error": failure.rpc_document()}
        self.add_piece(envelope.envelope(last, flags=envelope.END))
        await self.finish()


async def copied(
    call: SidecarCall, connection: Connection, stream: RpcStream, told: events.ProcessEvents
) -> None:
    """Copy an op's frames to the client as events, and note the op's verdict.

    Raises ClientGone, UpstreamError, WireError, and EnvdFailure for an end that is not the command's own.
    """
    async with cut_without_client(call.pool, connection, stream.receive) as client:
        last = await _copied(connection, stream, told)
    if last is None:
        if client.gone:
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
