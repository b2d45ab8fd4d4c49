"""The WebSockets of the data plane: terminals of sandboxes and those of exposed apps, bounded in number."""

from __future__ import annotations

import time

from ..metrics import Metrics
from .answers import Receive, Refusal, Scope, Send, no_such_route
from .door import Door
from .expose_http import ExposedHttp
from .expose_ws import ExposedSocket
from .pool import HttpPool
from .request import bearer, sort_headers
from .sockets import refuse
from .terminal import Terminal, TerminalRequest


class SocketPlane:
    """`serve` runs one WebSocket from its handshake to its end."""

    def __init__(self, *, door: Door, pool: HttpPool, metrics: Metrics, exposed: ExposedHttp) -> None:
        self._door = door
        self._pool = pool
        self._metrics = metrics
        self._exposed = exposed
        self._open = 0

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        parts: list[bytes] = scope["raw_path"].split(b"/", 3)
        exposed = len(parts) > 2 and parts[1] == b"expose"
        metrics = self._metrics.routes["expose" if exposed else "terminal"]
        metrics.in_flight += 1
        self._open += 1
        status = 101
        session: Terminal | ExposedSocket | None = None
        try:
            try:
                self._door.check_open()
                if self._open > self._door.limits.sockets:
                    raise self._door.unavailable("busy", "too many open WebSockets")
                if (await receive())["type"] != "websocket.connect":
                    return
                begin = self._begin_exposed if exposed else self._begin_terminal
                session = await begin(scope, parts)
            except Refusal as refusal:
                status = refusal.status
                await refuse(scope, send, refusal)
            else:
                await session.run(receive, send)
            metrics.finished(status, verdict=b"", seconds=time.perf_counter() - started)
        except OSError:
            metrics.unfinished("gone")  # the server's word for a client that left while something was sent
        finally:
            if session is not None:
                session.close()
            self._open -= 1
            metrics.in_flight -= 1

    async def _begin_exposed(self, scope: Scope, parts: list[bytes]) -> ExposedSocket:
        request = sort_headers(scope["headers"])
        exposure, route = await self._exposed.target(parts[2])
        session = ExposedSocket(pool=self._pool, route=route, exposure=exposure)
        rest = parts[3] if len(parts) == 4 else b""
        authorization = self._door.for_the_app(request.authorization)
        try:
            await session.begin(scope, request=request, rest=rest, authorization=authorization)
        except BaseException:
            session.close()
            raise
        return session

    async def _begin_terminal(self, scope: Scope, parts: list[bytes]) -> Terminal:
        if len(parts) != 4 or parts[1] != b"sbx" or parts[3] != b"terminal":
            raise no_such_route(scope["path"])
        asked = TerminalRequest.parse(scope["query_string"])
        sandbox_id = parts[2].decode("latin-1")
        token = bearer(sort_headers(scope["headers"]).authorization) or asked.token or ""
        tenant = self._door.authenticate(token, sandbox_id)
        route = await self._door.ready(sandbox_id, tenant, receive=None)
        session = Terminal(pool=self._pool, route=route, request=asked)
        try:
            await session.begin()
        except BaseException:
            session.close()
            raise
        return session
