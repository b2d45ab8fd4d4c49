"""Handles every request first: routes it, limits its body, gives it an id and counts it as in flight."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Protocol

from fastapi import Response
from sandlot_contract.trace import TRACEPARENT_KEY, parse_traceparent

from sandlot_gateway import logs
from sandlot_gateway.audit.call import note
from sandlot_gateway.bodies import (
    BODY_TIMEOUT,
    Account,
    BodyTooLarge,
    NoRoom,
    answer_early,
    read,
    replay,
    swallow,
)
from sandlot_gateway.control.audit import App, Audit
from sandlot_gateway.control.errors import error_response
from sandlot_gateway.control.paths import E2B_BASE, PREFIX, is_control, is_e2b
from sandlot_gateway.core.owners import STARTING
from sandlot_gateway.credentials import KEYS_PATH
from sandlot_gateway.data.answers import Message, Receive, Scope, Send
from sandlot_gateway.data.mounted import APP
from sandlot_gateway.data.request_id import identify
from sandlot_gateway.data.server import BEGUN, DROPPED
from sandlot_gateway.fusion.key_path import PATHS, hide_key
from sandlot_gateway.inside import Inside

_log = logging.getLogger(__name__)

_WITHOUT_RECOVERY = frozenset({"/healthz", "/readyz"})
_DATA = ("/sbx/", "/expose/", E2B_BASE + "/")
_NOT_A_USE = frozenset({"/healthz", "/readyz", "/metrics"})
_PEERS = "/internal/"  # questions of other gateways
_RECOVERY_WAIT = 30.0


class Clients(Enum):
    """Whom a draining gateway sends to another."""

    PLAIN = auto()  # TLS clients' HTTP/2 connections stay, so that a retry would reach this gateway again
    ALL = auto()


class Facade(Protocol):
    """An API of another system's clients."""

    @property
    def max_body(self) -> int: ...

    def account(self, scope: Scope) -> Account:
        """Return what counts the bytes of this request's body until its answer begins."""
        ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


class Edge:
    """The process's ASGI application: data plane for /sbx, /expose, E2B and WebSockets, control API for the rest."""

    def __init__(
        self,
        *,
        data: App,
        control: App,
        fusion: Facade | None,
        recovered: asyncio.Event,
        max_body: int,
        counted: Callable[[int], None],
        refusal: Callable[[Scope], str | None],
        is_known: Callable[[Scope], bool],
        audit: Audit | None,
        inside: Inside,
        relocate: Callable[[Scope], None] = lambda scope: None,
    ) -> None:
        """Check the control API's requests with `refusal`, by their headers, and the data plane's with `is_known`.

        `relocate` may change the path of a request by its host name.
        """
        self._relocate = relocate
        self._audit = audit
        self._inside = inside
        self._data = data
        self._control = control
        self._fusion = fusion
        self._recovered = recovered
        self._max_body = max_body
        self._counted = counted
        self._refusal = refusal
        self._is_known = is_known
        self._refused: Clients | None = None
        self._requests: set[asyncio.Task[Any]] = set()  # those of the control API in flight
        self.in_flight = 0
        self.last_use = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            raise RuntimeError("app.Gateway starts and stops this application")
        scope[BEGUN] = True
        self._relocate(scope)
        hide_key(scope)
        if self._audit is None or not _is_audited(scope):
            await self._serve(scope, receive, send)
        else:
            if scope["type"] == "websocket":  # the data plane, which refuses it, gives no record an id
                request_id = identify(_header(scope, b"x-request-id"))
                scope["headers"] = [*scope["headers"], (b"x-request-id", request_id)]
                logs.request_id.set(request_id.decode("latin-1"))
            await self._audit(scope, receive, send, app=self._serve)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        # Before recovery is complete, an existing sandbox would look like a lost one.
        if not self._recovered.is_set() and path not in _WITHOUT_RECOVERY:
            try:
                # Another gateway would take a wait for the silence of one that may be alive and claim.
                async with asyncio.timeout(0.0 if path == KEYS_PATH else _RECOVERY_WAIT):
                    await self._recovered.wait()
            except TimeoutError:
                note(error="starting")
                response = error_response(
                    503,
                    "the gateway is still starting: try again after Retry-After",
                    headers={"retry-after": "1"},
                    extra=STARTING if path == KEYS_PATH else None,
                )
                await _to_repeat(response, scope)(scope, receive, self._identified(scope, send))
                return
        is_use = path not in _NOT_A_USE
        self.in_flight += is_use
        try:
            if _is_data(scope):
                await self._data(scope, receive, send)
            elif self._refuses(scope) and not self._inside.sent(scope["headers"]):
                note(error="draining")
                text = "the gateway is shutting down: send the request again, to another gateway"
                headers = {"retry-after": "1", "connection": "close"}
                answer = _to_repeat(error_response(503, text, headers=headers), scope)
                limit = self._limit_of(scope)
                await answer_early(answer, receive, self._identified(scope, send), limit=limit)
                self._counted(answer.status_code)
            else:
                await self._in_flight(scope, receive, send)
        finally:
            self.in_flight -= is_use
            if is_use:
                self.last_use = time.monotonic()

    async def drain(self, clients: Clients, *, timeout: float) -> None:
        """Answer new control requests of these clients with 503, and wait up to `timeout` seconds for those in flight.

        Other gateways' questions and probes are answered as before.
        """
        self._refused = clients
        if self._requests:
            await asyncio.wait(set(self._requests), timeout=timeout)

    def is_known(self, scope: Scope) -> bool:
        """Return whether this request is authenticated; otherwise its body is not buffered."""
        self._relocate(scope)
        hide_key(scope)
        if _is_data(scope):
            return self._is_known(scope)
        return self._refusal(scope) is None

    def _refuses(self, scope: Scope) -> bool:
        path: str = scope["path"]
        if self._refused is None or path.startswith(_PEERS) or path in _NOT_A_USE:
            return False
        return self._refused is Clients.ALL or scope["scheme"] == "http"

    def _identified(self, scope: Scope, send: Send) -> _Identified:
        found = identify(_header(scope, b"x-request-id"))
        logs.request_id.set(found.decode("latin-1"))
        caller = parse_traceparent(_header(scope, TRACEPARENT_KEY))
        if caller is not None:
            logs.trace_id.set(caller[0])
        return _Identified(send, found)

    async def _in_flight(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._requests.add(task)
        try:
            await self._controlled(scope, receive, send)
        finally:
            self._requests.discard(task)

    def _facade_of(self, scope: Scope) -> Facade | None:
        """Return the facade that answers this request; None: the control API does."""
        return self._fusion if scope["path"] in PATHS else None

    def _limit_of(self, scope: Scope) -> int:
        """Return how many bytes the body of this request may have."""
        facade = self._facade_of(scope)
        return self._max_body if facade is None else facade.max_body

    async def _controlled(self, scope: Scope, receive: Receive, send: Send) -> None:
        identified = self._identified(scope, send)
        refusal = self._refusal(scope)
        if refusal is None and DROPPED in scope:  # its key became valid after its body was dropped
            refusal = "the API key was not valid yet when the request arrived: send it again"
        if refusal is not None:
            headers = {"www-authenticate": "Bearer", "connection": "close"}
            answer = error_response(401, refusal, headers=headers)
            await answer_early(answer, receive, identified, limit=self._limit_of(scope))
        else:
            facade = self._facade_of(scope)
            account = Account() if facade is None else facade.account(scope)
            identified.begins = account.close
            try:
                await self._answer(scope, receive, identified, account)
            finally:
                account.close()
        if identified.status is not None:  # else the caller left
            self._counted(identified.status)
        if _log.isEnabledFor(logging.DEBUG):
            about = {"method": scope["method"], "path": scope["path"], "status": identified.status}
            _log.debug("control request", extra=about)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, account: Account) -> None:
        limit = self._limit_of(scope)
        try:
            body = await read(scope, receive, limit=limit, account=account)
        except BodyTooLarge:
            # Closing while the client still sends would reset the connection and lose the response.
            await swallow(receive, limit=3 * limit)
            detail = f"the body is larger than {limit} bytes: send files to the data plane"
            response = error_response(413, detail, headers={"connection": "close"})
            await response(scope, receive, send)
        except TimeoutError:
            detail = f"the body did not arrive within {BODY_TIMEOUT:g} s: send it again, or send less"
            response = error_response(408, detail, headers={"connection": "close"})
            await _to_repeat(response, scope)(scope, receive, send)
        except NoRoom as error:
            note(error="no_sandbox")
            text = f"the code did not run: {error}; send the request again"
            response = error_response(504, text, headers={"retry-after": "1"})
            await response(scope, receive, send)
        else:
            if body is not None:
                receive = replay(body, receive)
                del body  # the application may be done with it long before it answers
                await (self._facade_of(scope) or self._control)(scope, receive, send)


class _Identified:
    """A `send` that adds the request's id to the response, and keeps its status; None until there is one."""

    def __init__(self, send: Send, own: bytes) -> None:
        self._send = send
        self._header = (b"x-request-id", own)
        self.status: int | None = None
        self.begins: Callable[[], None] = lambda: None  # called when the response begins

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.begins()
            message["headers"] = [*message.get("headers", ()), self._header]
        await self._send(message)


def _is_data(scope: Scope) -> bool:
    return scope["type"] == "websocket" or APP in scope or scope["path"].startswith(_DATA)


def _to_repeat(response: Response, scope: Scope) -> Response:
    """Return a 503 with the status that its client repeats: of SandboxFusion's API that is 504 alone."""
    if scope["path"] in PATHS:
        response.status_code = 504
    return response


def _is_audited(scope: Scope) -> bool:
    if APP in scope:
        return False
    path: str = scope["path"]
    if is_e2b(path):
        return is_control(path)
    return not path.startswith(_DATA) and (scope["type"] == "http" or path.startswith(PREFIX + "/"))


def _header(scope: Scope, name: bytes) -> bytes:
    return next((value for key, value in scope["headers"] if key == name), b"")
