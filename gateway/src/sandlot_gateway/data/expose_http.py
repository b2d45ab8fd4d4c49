"""Serves HTTP exposures: strips the prefix, adds X-Forwarded-* and sends the request through the tunnel."""

from __future__ import annotations

import logging
from collections.abc import Callable

from sandlot_contract.statuses import Status

from .answers import ErrorCode, Receive, Refusal, Scope, Send, no_such_route, sandbox_not_found
from .errors import ClientGone, DialError, PoolError, WireError
from .expose import Exposures
from .exposure import Exposure
from .forward import RequestHead, forward
from .pool import HttpPool
from .request import Parsed
from .routes import Route, Routes
from .tunnel import Refused, open_http, tunnel_key
from .wire import Headers

_log = logging.getLogger(__name__)

# What each would let an app do to the whole origin in its visitors' browsers, the console and API keys included.
_ORIGIN_WIDE = frozenset(
    (
        b"service-worker-allowed",  # answer requests itself
        b"cross-origin-opener-policy",  # keep hold of the console's window
        b"nel",  # have the addresses of requests reported to a server of its own,
        b"report-to",  # which these two name
        b"reporting-endpoints",
        b"clear-site-data",  # delete what other pages store, a key in the console's tab included
        b"strict-transport-security",  # lock visitors out of a gateway without TLS
        b"alt-svc",  # send requests to another port
    )
)
_REDIRECTS = (201, 301, 302, 303, 307, 308)


class ExposedHttp:
    """Serves HTTP exposures. The exposure's id in the path is the credential; the app does its own log-in."""

    def __init__(self, *, exposures: Exposures, routes: Routes, pool: HttpPool) -> None:
        self._exposures = exposures
        self._routes = routes
        self._pool = pool

    async def target(self, exposure_id: bytes) -> tuple[Exposure, Route]:
        """Return an exposure and its route. Raises Refusal: 404 for an unknown id, 502 for an ended sandbox."""
        exposure = await self._exposures.found(exposure_id.decode("latin-1"))
        if exposure is None or exposure.protocol != "HTTP":
            raise Refusal(404, "no_such_exposure", "no such exposure: its id is wrong, or it was removed")
        route = self._routes.find(exposure.sandbox_id)
        if route is None:  # another gateway's; its record is on its way
            route = await self._routes.wait_ready(exposure.sandbox_id, 0.0)
        if route is None or route.status is not Status.RUNNING:
            raise sandbox_not_found(
                verdict=route.verdict if route else None, message=route.message if route else None
            )
        return exposure, route

    async def http(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        request: Parsed,
        parts: list[bytes],
        authorization: bytes,
        admit: Callable[[Route], None],
    ) -> tuple[int, Headers]:
        """Serve a request; `authorization` is what the app may see, `admit` takes a permit or raises Refusal."""
        exposure, route = await self.target(parts[2])
        if len(parts) < 4:
            raise _with_slash(scope)
        method: str = scope["method"]
        query: bytes = scope["query_string"]
        first = await receive()
        if first["type"] == "http.disconnect":
            raise ClientGone
        prefix = exposure.path.rstrip("/").encode()
        lines = [
            b"%b /%b HTTP/1.1\r\nhost: localhost:%d\r\n"
            % (method.encode(), b"%b?%b" % (parts[3], query) if query else parts[3], exposure.port),
            *[line for line in request.lines if not line.startswith(b"x-forwarded-")],
            *forwarded_lines(scope, prefix=prefix),
        ]
        if authorization:
            lines.append(b"authorization: %b\r\n" % authorization)

        def edit(status: int, headers: Headers, body: bytes | None) -> tuple[int, Headers, bytes | None]:
            headers = [(key, value) for key, value in headers if key not in _ORIGIN_WIDE]
            if status in _REDIRECTS:
                headers = [(key, _prefixed(key, value, prefix)) for key, value in headers]
            return status, headers, body

        self._routes.touched(exposure.sandbox_id)
        admit(route)
        try:
            return await forward(
                pool=self._pool,
                key=tunnel_key(route, exposure.port),
                dial_with=lambda: open_http(pool=self._pool, route=route, port=exposure.port),
                head=RequestHead(lines, request.length, method),
                first=first,
                receive=receive,
                send=send,
                edit=edit,
            )
        except PoolError as error:
            raise refusal(error, port=exposure.port) from error


def refusal(error: PoolError, *, port: int) -> Refusal:
    """Return the error for a visitor: anybody may have the link, so it does not say where the sandbox is."""
    _log.info("request to an exposed port failed", extra={"port": port, "error": str(error)})
    if isinstance(error, Refused):
        return Refusal(502, "refused", f"nothing listens on port {port} of the sandbox", may_have_run=False)
    if isinstance(error, DialError):
        message = f"port {port} of the sandbox cannot be reached: the sandbox does not answer; try again"
        return Refusal(502, ErrorCode.SIDECAR_UNREACHABLE, message, may_have_run=False, sandbox=error.peer)
    why = str(error.__cause__) if isinstance(error.__cause__, WireError) else "the connection was lost"
    message = f"the app on port {port} sent no valid HTTP response: {why}"
    return Refusal(502, ErrorCode.APP_FAILED, message, may_have_run=True)


def forwarded_lines(scope: Scope, *, prefix: bytes | None = None) -> list[bytes]:
    """Return X-Forwarded-* lines, which replace the client's own: those may be forged."""
    client = scope.get("client")
    host = next((value for name, value in scope["headers"] if name == b"host"), b"")
    lines = [b"x-forwarded-proto: %b\r\n" % scope.get("scheme", "http").encode()]
    if prefix is not None:
        lines.append(b"x-forwarded-prefix: %b\r\n" % prefix)
    if client:
        lines.append(b"x-forwarded-for: %b\r\n" % str(client[0]).encode())
    if host:
        lines.append(b"x-forwarded-host: %b\r\n" % host)
    return lines


def _prefixed(key: bytes, value: bytes, prefix: bytes) -> bytes:
    """Add the prefix to a redirect such as /login of an app that does not know its prefix."""
    if key != b"location" or not value.startswith(b"/") or value.startswith((b"//", prefix + b"/")):
        return value
    return prefix + value


def _with_slash(scope: Scope) -> Refusal:
    """Redirect to the path with a slash, without which relative links of the app's first page do not work."""
    if scope["method"] not in ("GET", "HEAD"):
        return no_such_route(scope["path"])
    query: bytes = scope["query_string"]
    location = scope["raw_path"] + b"/" + (b"?" + query if query else b"")
    return Refusal(308, "moved", "the exposure's path ends with a slash", headers=[(b"location", location)])
