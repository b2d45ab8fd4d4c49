"""Serves the WebSockets of the data plane (terminals and exposed apps), limited in number."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from sandlot_contract.trace import parse_traceparent

from .. import logs
from ..credentials import bearer
from ..metrics import Metrics
from .answers import Receive, Refusal, Scope, Send, no_such_route, unexpected
from .expose_http import ExposedHttp, forwarded_lines
from .expose_ws import ExposedSocket, Handshake
from .mounted import APP, Mounted, Session
from .pool import HttpPool
from .request import sandbox_in, sort_headers
from .request_gate import RequestGate
from .request_id import identify
from .routes import Route
from .sockets import refuse
from .terminal import Terminal, TerminalRequest

log = logging.getLogger("sandlot.data")


class SocketPlane:
    """Counts and serves WebSockets, each from its handshake to its end."""

    def __init__(
        self,
        *,
        request_gate: RequestGate,
        pool: HttpPool,
        metrics: Metrics,
        exposed: ExposedHttp,
        mounted: Callable[[], Mounted | None],
    ) -> None:
        """Serve the sockets of `mounted` as well."""
        self._request_gate = request_gate
        self._pool = pool
        self._metrics = metrics
        self._exposed = exposed
        self._mounted = mounted
        self._open = 0
        self._open_of: Counter[str] = Counter()  # by sandbox
        self._open_of_tenant: Counter[str] = Counter()

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        request = sort_headers(scope["headers"])
        request_id = identify(request.request_id)
        caller = parse_traceparent(request.traceparent)
        if caller is not None:
            logs.trace_id.set(caller[0])
        parts: list[bytes] = scope["raw_path"].split(b"/", 3)
        exposed = len(parts) > 2 and parts[1] == b"expose"
        mounted = self._mounted() if APP in scope else None
        metrics = self._metrics.routes["expose" if exposed or mounted else "terminal"]
        metrics.in_flight += 1
        self._open += 1
        status = 101
        try:
            try:
                self._request_gate.check_open(scope)
                if self._open > self._request_gate.limits.sockets:
                    raise self._request_gate.unavailable(
                        "busy", "the gateway has too many open WebSockets: try again after Retry-After"
                    )
                if (await receive())["type"] != "websocket.connect":
                    return
                session: Session
                if mounted is not None:
                    route, session = await mounted.socket(scope)
                elif exposed:
                    route, session = await self._exposed_socket(scope, parts)
                else:
                    route, session = await self._terminal(scope, parts)
                with self._one_of(route), closing(session):
                    await session.begin()
                    await session.run(receive, send)
            except Refusal as refusal:
                status = refusal.status
                await refuse(scope, send, refusal, request_id=request_id)
            metrics.finished(status, verdict=b"", seconds=time.perf_counter() - started)
        except OSError:
            metrics.unfinished("gone")  # the server raises it for a client that left during a send
        except Exception:
            log.exception(
                "a WebSocket failed in an unexpected way", extra={"request": request_id.decode("latin-1")}
            )
            failure = unexpected()
            try:
                await refuse(scope, send, failure, request_id=request_id)
            except RuntimeError:  # it has been accepted: the server closes it
                metrics.unfinished("cut")
            except OSError:
                metrics.unfinished("gone")
            else:
                metrics.finished(failure.status, verdict=b"", seconds=time.perf_counter() - started)
        finally:
            self._open -= 1
            metrics.in_flight -= 1

    @contextmanager
    def _one_of(self, route: Route) -> Iterator[None]:
        """Count a WebSocket against its sandbox's and tenant's limits, so that none can take all. Raises Refusal."""
        limits = self._request_gate.limits
        if self._open_of[route.sandbox_id] >= limits.sockets_per_sandbox:
            raise self._request_gate.unavailable(
                "busy", "this sandbox has too many open WebSockets: close some"
            )
        if self._open_of_tenant[route.tenant] >= limits.sockets - limits.sockets // 10:
            raise self._request_gate.unavailable(
                "busy", "this tenant has too many open WebSockets: close some"
            )
        counts = ((self._open_of, route.sandbox_id), (self._open_of_tenant, route.tenant))
        for counter, name in counts:
            counter[name] += 1
        try:
            yield
        finally:
            for counter, name in counts:
                counter[name] -= 1
                if not counter[name]:
                    del counter[name]

    async def _exposed_socket(self, scope: Scope, parts: list[bytes]) -> tuple[Route, ExposedSocket]:
        request = sort_headers(scope["headers"])
        exposure, route = await self._exposed.target(parts[2])
        rest, query = parts[3] if len(parts) == 4 else b"", scope["query_string"]
        lines = [line for line in request.lines if not line.startswith(b"x-forwarded-")]
        lines += forwarded_lines(scope, prefix=exposure.path.rstrip("/").encode())
        if authorization := self._request_gate.for_the_app(request.authorization):
            lines.append(b"authorization: %b\r\n" % authorization)
        asked = Handshake(
            port=exposure.port,
            target=b"/%b?%b" % (rest, query) if query else b"/" + rest,
            host=b"localhost:%d" % exposure.port,
            lines=lines,
        )
        return route, ExposedSocket(pool=self._pool, route=route, asked=asked)

    async def _terminal(self, scope: Scope, parts: list[bytes]) -> tuple[Route, Terminal]:
        if len(parts) != 4 or parts[1] != b"sbx" or parts[3] != b"terminal":
            raise no_such_route(scope["path"])
        asked = TerminalRequest.parse(scope["query_string"])
        sandbox_id = sandbox_in(parts[2])
        token = bearer(sort_headers(scope["headers"]).authorization) or asked.token or ""
        tenant = self._request_gate.authenticate(token, sandbox_id)
        route = await self._request_gate.ready(sandbox_id, tenant, receive=None)
        return route, Terminal(pool=self._pool, route=route, request=asked)
