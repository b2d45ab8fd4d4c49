"""Serves many clients by the streamable HTTP transport: the ASGI application that a gateway loads for /mcp.

It keeps nothing between requests, so that any gateway can answer any of them, and has no rights of its own: it calls
the gateway's API with the key of each request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from sandlot._async.client import AsyncClient
from sandlot.endpoint import endpoint
from sandlot.errors import ConfigError, SandlotError
from sandlot.integrations.mcp import wire
from sandlot.integrations.mcp.http_answers import Answer, Send, keep_open, respond, status_of
from sandlot.integrations.mcp.http_checks import check_headers, single_headers
from sandlot.integrations.mcp.in_flight import Full, InFlight, Request
from sandlot.integrations.mcp.loopback import LoopbackTransport
from sandlot.integrations.mcp.protocol import answer, stateless_version
from sandlot.integrations.mcp.session import Session
from sandlot.integrations.mcp.wire import Call, WireError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

_SESSION = "mcp-session-id"
_RETRY = 10.0  # seconds; the caller waits, and can retry by itself


class Application:
    """The tools for the clients of one gateway. `aclose` ends its connections."""

    def __init__(
        self,
        *,
        address: str,
        public_url: str | None,
        image: str | None,
        headers: Mapping[str, str],
        new_session: Callable[[str], str],
        session_name: Callable[[str, str], str | None],
    ) -> None:
        """Call the gateway at `address`, with these headers beside the key.

        `new_session` makes the id of a session for an API key; `session_name` returns the public part of one, or None
        if it was made for another key.
        """
        self._address = address
        self._image = image
        self._new_session = new_session
        self._session_name = session_name
        self._transport = LoopbackTransport(address, public_url=public_url, headers=headers)
        self._in_flight = InFlight()

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def drain(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for the requests that run, then cut them."""
        await self._in_flight.drain(timeout)

    async def __call__(self, scope: Scope, receive: Receive, send: Send, *, key: str, tenant: str) -> None:
        """Answer a request whose API key, of this tenant, the gateway has checked."""
        headers, repeated = single_headers(scope["headers"])
        method: str = scope["method"]
        if method == "DELETE":
            await respond(send, await self._end(scope, headers, key=key, tenant=tenant))
        elif method != "POST":
            # Such a stream would carry the server's own messages, of which there are none.
            await respond(send, Answer(405, headers={"allow": "POST, DELETE"}))
        else:
            await self._post(scope, receive, send, headers=headers, repeated=repeated, key=key, tenant=tenant)

    async def _post(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        headers: Mapping[str, str],
        repeated: str | None,
        key: str,
        tenant: str,
    ) -> None:
        body = await _body(receive)
        if body is None:
            return
        call: Call | None = None
        try:
            if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
                # Browsers send other types without asking first.
                raise _Refused(Answer(415, text="the Content-Type must be application/json"))
            call = wire.parse(body)
            check_headers(call, headers, repeated=repeated)
            name = self._named(headers, key=key)
            if call.id is None or call.is_answer:
                self._notified(call, headers)
                await respond(send, Answer(202))
                return
            more: dict[str, str] = {}
            if call.method == "initialize" and stateless_version(call) is None:
                more[_SESSION] = self._new_session(key)
            session = self._session(scope, headers, key=key, tenant=tenant, name=name)
            await self._answer(call, session, receive, send, headers=headers, more=more, tenant=tenant)
        except _Refused as refused:
            await respond(send, refused.answer)
        except WireError as error:
            identity = call.id if call is not None else None
            await respond(send, Answer(status_of(error, call), document=wire.error_of(error, identity)))

    async def _answer(
        self,
        call: Call,
        session: Session,
        receive: Receive,
        send: Send,
        *,
        headers: Mapping[str, str],
        more: Mapping[str, str],
        tenant: str,
    ) -> None:
        accepts_stream = "text/event-stream" in headers.get("accept", "")
        try:
            with self._in_flight.one(tenant) as request:
                request.session, request.id = headers.get(_SESSION, ""), call.id
                request.task = task = asyncio.ensure_future(self._document(call, session, request))
                await keep_open(task, receive, send, call=call, headers=more, accepts_stream=accepts_stream)
        except Full as full:
            raise _Refused(_busy(full)) from None

    async def _document(self, call: Call, session: Session, request: Request) -> Answer:
        try:
            document = wire.result_of(call.id, await answer(call, session))
        except WireError as error:
            return Answer(status_of(error, call), document=wire.error_of(error, call.id))
        except asyncio.CancelledError:
            if not self._in_flight.draining:
                raise
            error = WireError(
                wire.BUSY, "the gateway is shutting down and ended the call: look what it did, or repeat it"
            )
            return Answer(200, document=wire.error_of(error, call.id))
        # At once: a result is several times as large before it is encoded.
        encoded = wire.encode(document)
        if self._in_flight.hold(request, len(encoded)):
            return Answer(200, encoded=encoded)
        error = WireError(wire.BUSY, _unread(document["result"], len(encoded)))
        return Answer(200, document=wire.error_of(error, call.id))

    async def _end(self, scope: Scope, headers: Mapping[str, str], *, key: str, tenant: str) -> Answer:
        """End a session: delete its sandboxes."""
        if not headers.get(_SESSION):
            return Answer(400, text="the header Mcp-Session-Id is missing: it names the session to end")
        try:
            name = self._named(headers, key=key)
            session = self._session(scope, headers, key=key, tenant=tenant, name=name)
            with self._in_flight.one(tenant):
                # A create that runs could make its sandbox after the others are deleted.
                await self._in_flight.end(headers[_SESSION])
                await session.end()
        except _Refused as refused:
            return refused.answer
        except Full as full:
            return _busy(full)
        except (SandlotError, TimeoutError) as error:
            return Answer(503, text=f"the session's sandboxes may live until their timeouts: {error}")
        return Answer(204)

    def _named(self, headers: Mapping[str, str], *, key: str) -> str | None:
        """Return the name of the request's session, or None without one."""
        given = headers.get(_SESSION)
        if not given:
            return None
        name = self._session_name(given, key)
        if name is None:
            text = "unknown session: it was not made for this API key; send initialize again, without Mcp-Session-Id"
            raise _Refused(Answer(404, text=text))
        return name

    def _session(
        self, scope: Scope, headers: Mapping[str, str], *, key: str, tenant: str, name: str | None
    ) -> Session:
        url = f"http://{headers.get('host', '')}"
        try:
            origin = endpoint(url=url, api_key=key).origin
        except ConfigError:
            url = self._address
            origin = endpoint(url=url, api_key=key).origin
        client = AsyncClient(url=url, api_key=key, retry_for=_RETRY)
        client.transport = self._transport
        outside = (f"http://{origin.authority}", f"{scope['scheme']}://{headers.get('host', '')}")
        return Session(client=client, owner=tenant, id=name, image=self._image, run="", origin=outside)

    def _notified(self, call: Call, headers: Mapping[str, str]) -> None:
        """Cancel a request of the same session, if it runs in this process."""
        identity, session = call.params.get("requestId"), headers.get(_SESSION)
        if call.method == "notifications/cancelled" and session and isinstance(identity, str | int):
            self._in_flight.cancel(session, identity)


class _Refused(Exception):
    """An answer without a JSON-RPC message."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.text)
        self.answer = answer


def _unread(result: dict[str, Any], size: int) -> str:
    op = result.get("structuredContent", {}).get("op_id")
    again = "call again" if op is None else f"read_output with op_id {op} has the command's output"
    return (
        f"the result of {size} bytes is dropped, since clients have not read earlier ones: read them; {again}"
    )


def _busy(full: Full) -> Answer:
    return Answer(503, text=str(full), headers={"retry-after": "1"})


async def _body(receive: Receive) -> bytes | None:
    """Return the body, which the gateway has limited; None if the client has gone."""
    pieces: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        pieces.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(pieces)
