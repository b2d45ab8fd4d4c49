"""Serves the ports of users' apps at `PORT-SANDBOX.DOMAIN`: HTTP and WebSockets, through the tunnel to the sandbox."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from sandlot_gateway.control.services import Services
from sandlot_gateway.data.answers import Receive, Refusal, Scope, Send
from sandlot_gateway.data.errors import ClientGone, PoolError
from sandlot_gateway.data.expose_http import forwarded_lines, refusal
from sandlot_gateway.data.expose_ws import ExposedSocket, Handshake
from sandlot_gateway.data.forward import RequestHead, forward
from sandlot_gateway.data.mounted import APP, APP_BASE, Session
from sandlot_gateway.data.pool import HttpPool
from sandlot_gateway.data.request import Parsed, sort_headers
from sandlot_gateway.data.request_gate import RequestGate
from sandlot_gateway.data.routes import Route
from sandlot_gateway.data.tunnel import open_http, tunnel_key
from sandlot_gateway.data.wire import Headers
from sandlot_gateway.sandboxes import Sandbox

from .app_access import AppAccess
from .app_headers import for_the_app, for_the_client
from .app_refusals import bad_request, of_refusal
from .paths import AppHost
from .serving import Serving

_METHOD = re.compile(r"[A-Z][A-Z_-]*\Z")
_TARGET = re.compile(rb"/[\x21-\x7e\x80-\xff]*\Z")


class Apps:
    def __init__(self, have: Services, *, serving: Serving, gate: RequestGate, pool: HttpPool) -> None:
        self._keys = have.keys
        self._gate = gate
        self._pool = pool
        self._access = AppAccess(have, serving=serving, gate=gate)
        self.is_known = self._access.is_known

    async def http(
        self, scope: Scope, receive: Receive, send: Send, *, request_id: bytes
    ) -> tuple[int, bytes]:
        """Serve one request; return its status. Raises Refusal, ClientGone, Truncated."""
        app: AppHost = scope[APP]
        method: str = scope["method"]
        target = _target(scope)
        if not _METHOD.match(method) or method == "CONNECT" or target is None:
            raise bad_request(app)
        route, sandbox = await self._access.target(scope)
        first = await receive()
        if first["type"] == "http.disconnect":
            raise ClientGone
        request = self._sorted(scope)
        if not request.request_id:
            request.lines.append(b"x-request-id: %b\r\n" % request_id)
        lines = [
            b"%b %b HTTP/1.1\r\nhost: %b\r\n" % (method.encode(), target, _host(app, sandbox)),
            *_lines(request, scope),
        ]
        lane = f"{route.sandbox_id}/expose"  # not that of commands, which long polls would block
        with self.translated(app, route):
            self._gate.enter_now(lane, tenant=route.tenant, name="expose")
            try:
                status, _ = await forward(
                    pool=self._pool,
                    key=tunnel_key(route, app.port),
                    dial_with=lambda: open_http(pool=self._pool, route=route, port=app.port),
                    head=RequestHead(lines, request.length, method),
                    first=first,
                    receive=receive,
                    send=send,
                    edit=_edit,
                )
            finally:
                self._gate.leave(lane)
        return status, b""

    async def socket(self, scope: Scope) -> tuple[Route, Session]:
        """Return what serves a WebSocket, and whose it is. Raises Refusal."""
        app: AppHost = scope[APP]
        target = _target(scope)
        if target is None:
            raise bad_request(app)
        route, sandbox = await self._access.target(scope)
        asked = Handshake(
            port=app.port,
            target=target,
            host=_host(app, sandbox),
            lines=_lines(self._sorted(scope), scope),
        )
        return route, _Socket(ExposedSocket(pool=self._pool, route=route, asked=asked), self, app, route)

    @contextmanager
    def translated(self, app: AppHost, route: Route) -> Iterator[None]:
        """Turn the failures of the way to an app into E2B's answers."""
        try:
            try:
                yield
            except PoolError as error:
                self._gate.check_alive(route.sandbox_id, may_have_run=error.may_have_run)
                raise refusal(error, port=app.port) from error
        except Refusal as found:
            raise of_refusal(app, found, limit=self._access.limit) from found

    def _sorted(self, scope: Scope) -> Parsed:
        return sort_headers(for_the_app(scope["headers"], self._keys))


class _Socket:
    """A WebSocket to an app, whose handshake fails in E2B's forms."""

    def __init__(self, session: ExposedSocket, apps: Apps, app: AppHost, route: Route) -> None:
        self._session = session
        self._apps = apps
        self._app = app
        self._route = route

    async def begin(self) -> None:
        with self._apps.translated(self._app, self._route):
            await self._session.begin()

    async def run(self, receive: Receive, send: Send) -> None:
        await self._session.run(receive, send)

    def close(self) -> None:
        self._session.close()


def _target(scope: Scope) -> bytes | None:
    """Return the path and query as the client sent them; None for one that could not be a request's line."""
    path: bytes = scope["raw_path"][len(APP_BASE) :] or b"/"
    query: bytes = scope["query_string"]
    target = b"%b?%b" % (path, query) if query else path
    return target if _TARGET.match(target) else None


def _host(app: AppHost, sandbox: Sandbox) -> bytes:
    ports = sandbox.spec.ports
    mask = None if ports is None else ports.host
    return app.host if mask is None else mask.replace("${PORT}", str(app.port)).encode()


def _lines(request: Parsed, scope: Scope) -> list[bytes]:
    lines = [*request.lines, *forwarded_lines(scope)]
    if request.authorization:
        lines.append(b"authorization: %b\r\n" % request.authorization)
    return lines


def _edit(status: int, headers: Headers, body: bytes | None) -> tuple[int, Headers, bytes | None]:
    return status, for_the_client(headers), body
