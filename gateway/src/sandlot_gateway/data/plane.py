"""The data plane's ASGI app: checks who asks for which sandbox, waits for a place, and hands over to its sidecar."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from itertools import count

import msgspec

from ..metrics import Metrics
from ..tokens import Tokens
from .access import AccessLog
from .answers import (
    Receive,
    Refusal,
    Scope,
    Send,
    no_such_route,
    sandbox_not_found,
    send_json,
    unauthorized,
    unavailable,
)
from .breaker import Abandoned, Breaker, Limits, Overloaded
from .errors import DialError, UpstreamError
from .expose import Exposures
from .expose_http import ExposedHttp
from .expose_ws import ExposedSocket
from .forward import ClientGone, RequestHead, Truncated, forward
from .pool import HttpPool
from .request import Parsed, bearer, climbs, sort_headers
from .routes import ApiKeys, Route, Routes
from .sockets import refuse
from .terminal import Terminal, TerminalRequest
from .watch import until_gone
from .wire import Headers

log = logging.getLogger("sandlot.data")

# First segment behind /sbx/{id}/ → route class. All else of the sidecar (claim, reset, end, state, metrics,
# healthz, tcp) is the gateway's own business and does not exist for clients.
_ROUTES = {
    b"exec": "exec",
    b"ops": "ops",
    b"files": "files",
    b"upload": "files",
    b"download": "files",
    b"read-file": "files",
    b"logs": "logs",
}


class DataPlane:
    """ASGI app for `/sbx/{sandbox_id}/…` and `/expose/{exposure_id}/…`, HTTP and WebSocket.

    Requests that start or move something take a place in the breaker. Those that steer or watch an op that has a
    place already (stdin, signal, resize, look, kill, attach, logs) do not: were they queued behind 256 commands
    that wait for their stdin, nothing would ever move.
    """

    def __init__(
        self,
        *,
        routes: Routes,
        tokens: Tokens,
        api_keys: ApiKeys,
        pool: HttpPool,
        metrics: Metrics,
        exposures: Exposures,
        limits: Limits | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.breaker = Breaker(self.limits)
        self._routes = routes
        self._tokens = tokens
        self._api_keys = api_keys
        self._pool = pool
        self._metrics = metrics
        self._exposed_http = ExposedHttp(exposures=exposures, routes=routes, pool=pool)
        self._access = AccessLog(self.limits.access_log)
        self._request_ids = (b"%b-%x" % (os.urandom(4).hex().encode(), n) for n in count(1))
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining = False
        self._sockets = 0
        metrics.live(
            "sandlot_queue_depth", "Requests that wait for a place.", read=lambda: self.breaker.waiting
        )
        metrics.live("sandlot_running", "Requests that have a place.", read=lambda: self.breaker.running)
        for state in ("idle", "busy"):
            metrics.live(
                "sandlot_pool_connections",
                "Connections to upstreams.",
                label=("state", state),
                read=lambda state=state: getattr(pool, f"{state}_connections"),
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if scope["type"] == "http":
                await self._http(scope, receive, send)
            else:
                await self._websocket(scope, receive, send)
        finally:
            self._tasks.discard(task)

    async def drain(self, timeout: float) -> int:
        """Refuse new requests, wait up to `timeout` seconds for those in flight; how many were cut off then."""
        self._draining = True
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=timeout)
        left = set(self._tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        return len(left)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        raw: bytes = scope["raw_path"]
        parts = raw.split(b"/", 3)
        exposed = len(parts) > 2 and parts[1] == b"expose"
        rest = parts[3] if len(parts) == 4 else b""
        name = "expose" if exposed else _ROUTES.get(rest.partition(b"/")[0], "other")
        metrics = self._metrics.routes[name]
        metrics.in_flight += 1
        request = sort_headers(scope["headers"])
        request_id = request.request_id
        if not request_id:
            request_id = next(self._request_ids)
            request.lines.append(b"x-request-id: " + request_id + b"\r\n")
        status: int | str = "gone"
        verdict = b""
        queued = [0.0]
        try:
            try:
                if self._draining:
                    raise unavailable(
                        "draining", "the gateway is shutting down", retry_after=self.limits.retry_after
                    )
                if exposed:
                    status, _ = await self._exposed(scope, receive, send, request, parts)
                else:
                    status, headers = await self._sandbox(scope, receive, send, request, parts, name, queued)
                    for key, value in headers:
                        if key == b"x-sandlot-verdict":
                            verdict = value
            except Refusal as refusal:
                status = refusal.status
                refusal.headers.append((b"x-request-id", request_id))
                if self._draining:
                    refusal.headers.append((b"connection", b"close"))
                await send_json(send, status, refusal.document, headers=refusal.headers)
            if isinstance(status, int):
                metrics.finished(status, verdict=verdict, seconds=time.perf_counter() - started)
        except ClientGone:
            metrics.unfinished("gone")
        except Truncated as error:
            # Returning without the end of the response makes the server close the connection.
            status = "cut"
            metrics.unfinished("cut")
            log.warning("response cut: %s", error, extra={"request_id": request_id.decode("latin-1")})
        finally:
            metrics.in_flight -= 1
            if self._access.share:
                self._access.write(
                    method=scope["method"],
                    route=name,
                    status=status,
                    seconds=time.perf_counter() - started,
                    sandbox_id="" if exposed or len(parts) < 3 else parts[2].decode("latin-1"),
                    op=request.op,
                    request_id=request_id,
                    queued=queued[0],
                    verdict=verdict,
                )

    async def _sandbox(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        request: Parsed,
        parts: list[bytes],
        name: str,
        queued: list[float],
    ) -> tuple[int, Headers]:
        if len(parts) != 4 or parts[1] != b"sbx" or name == "other":
            raise no_such_route(scope["path"])
        rest = parts[3]
        if climbs(rest):
            raise Refusal(400, "bad_path", "the path must not contain '.' or '..' segments", field="path")
        sandbox_id = parts[2].decode("latin-1")
        tenant = self._authenticate(bearer(request.authorization), sandbox_id)
        first = await receive()
        if first["type"] == "http.disconnect":
            raise ClientGone
        more = first.get("more_body", False)
        route = await self._ready(sandbox_id, tenant, receive=None if more else receive)
        method: str = scope["method"]
        takes_place = name in ("exec", "files") or (method == "POST" and rest == b"ops")
        if takes_place and not self._try_enter(sandbox_id):
            queued[0] = await self._wait_for_place(sandbox_id, receive=None if more else receive)
            request.lines.append(b"x-sandlot-queued: %.6f\r\n" % queued[0])
        try:
            query: bytes = scope["query_string"]
            lines = [
                b"%b /v1/%b HTTP/1.1\r\nhost: sidecar\r\nauthorization: Bearer %b\r\n"
                % (method.encode(), b"%b?%b" % (rest, query) if query else rest, route.token.encode()),
                *request.lines,
            ]
            return await forward(
                pool=self._pool,
                key=route.address,
                head=RequestHead(lines, request.length, method),
                first=first,
                receive=receive,
                send=send,
                edit=_hide_the_sidecars_end,
            )
        except DialError as error:
            self._raise_if_dead(sandbox_id, may_have_run=False)
            raise Refusal(502, "sidecar_unreachable", str(error), may_have_run=False) from error
        except UpstreamError as error:
            self._raise_if_dead(sandbox_id, may_have_run=True)
            raise Refusal(502, "sidecar_lost", str(error), may_have_run=True) from error
        finally:
            if takes_place:
                self.breaker.leave(sandbox_id)

    async def _exposed(
        self, scope: Scope, receive: Receive, send: Send, request: Parsed, parts: list[bytes]
    ) -> tuple[int, Headers]:
        places: list[str] = []

        def admit(sandbox_id: str) -> None:
            lane = f"{sandbox_id}/expose"  # of its own: a page's long polls must not keep commands out
            if not self._try_enter(lane):
                raise self._busy(Overloaded(self.breaker.full(lane)))
            places.append(lane)

        try:
            return await self._exposed_http.http(
                scope,
                receive,
                send,
                request=request,
                parts=parts,
                authorization=self._for_the_app(request.authorization),
                admit=admit,
            )
        finally:
            for lane in places:
                self.breaker.leave(lane)

    def _for_the_app(self, authorization: bytes) -> bytes:
        """A caller that sends its gateway credential along must not hand it to what runs in a sandbox."""
        token = bearer(authorization)
        ours = token.startswith("sct_") or (token and self._api_keys.tenant(token) is not None)
        return b"" if ours else authorization

    def _authenticate(self, token: str, sandbox_id: str) -> str:
        """The tenant behind a client token of this sandbox or an API key; raises Refusal (401)."""
        if token:
            if token.startswith("sct_"):
                tenant = self._tokens.check_client(token, sandbox_id)
            else:
                tenant = self._api_keys.tenant(token)
            if tenant is not None:
                return tenant
        raise unauthorized()

    async def _ready(self, sandbox_id: str, tenant: str, *, receive: Receive | None) -> Route:
        """The route of a running sandbox of this tenant; raises Refusal."""
        route = self._routes.find(sandbox_id)
        if route is not None and route.tenant == tenant and route.status == "PENDING":
            await self._wait_ready(sandbox_id, receive=receive)
            route = self._routes.find(sandbox_id)
        if route is None or route.tenant != tenant:
            raise sandbox_not_found(verdict=None, message=None)
        if route.status == "PENDING":
            raise unavailable(
                "sandbox_pending", "the sandbox is still starting", retry_after=self.limits.retry_after
            )
        if route.status != "RUNNING":
            raise sandbox_not_found(verdict=route.verdict, message=route.message)
        self._routes.touched(sandbox_id)
        return route

    async def _wait_ready(self, sandbox_id: str, *, receive: Receive | None) -> None:
        loop = asyncio.get_running_loop()
        tasks: set[asyncio.Task[object]] = {
            loop.create_task(self._routes.wait_ready(sandbox_id, self.limits.pending_wait))
        }
        leaving = None if receive is None else loop.create_task(until_gone(receive))
        if leaving is not None:
            tasks.add(leaving)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if leaving is not None and leaving.done():
                raise ClientGone
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def _try_enter(self, sandbox_id: str) -> bool:
        try:
            return self.breaker.try_enter(sandbox_id)
        except Overloaded as error:
            raise self._busy(error) from error

    async def _wait_for_place(self, sandbox_id: str, *, receive: Receive | None) -> float:
        gone = None if receive is None else lambda: until_gone(receive)
        try:
            queued = await self.breaker.enter(sandbox_id, gone=gone)
        except Abandoned as error:
            raise ClientGone from error
        except Overloaded as error:
            raise self._busy(error) from error
        self._metrics.queue_seconds.observe(queued)
        return queued

    def _busy(self, error: Overloaded) -> Refusal:
        self._metrics.rejected.labels(error.full.scope).inc()
        where = "this sandbox" if error.full.scope == "sandbox" else "the gateway"
        return unavailable(
            "busy",
            f"the queue of {where} is full",
            retry_after=self.limits.retry_after,
            may_have_run=False,
            **error.full.document(),
        )

    def _raise_if_dead(self, sandbox_id: str, *, may_have_run: bool) -> None:
        """A sidecar that cannot be reached because its sandbox ended: say that, it is the cause."""
        route = self._routes.find(sandbox_id)
        if route is None or route.status not in ("PENDING", "RUNNING"):
            raise sandbox_not_found(
                verdict=route.verdict if route else None,
                message=route.message if route else None,
                may_have_run=may_have_run,
            )

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        parts: list[bytes] = scope["raw_path"].split(b"/", 3)
        exposed = len(parts) > 2 and parts[1] == b"expose"
        metrics = self._metrics.routes["expose" if exposed else "terminal"]
        metrics.in_flight += 1
        self._sockets += 1
        status = 101
        session: Terminal | ExposedSocket | None = None
        try:
            try:
                if self._draining:
                    raise unavailable(
                        "draining", "the gateway is shutting down", retry_after=self.limits.retry_after
                    )
                if self._sockets > self.limits.sockets:
                    raise unavailable("busy", "too many open WebSockets", retry_after=self.limits.retry_after)
                if (await receive())["type"] != "websocket.connect":
                    return
                request = sort_headers(scope["headers"])
                if exposed:
                    exposure, route = self._exposed_http.target(parts[2])
                    session = ExposedSocket(pool=self._pool, route=route, exposure=exposure)
                    await session.begin(
                        scope,
                        request=request,
                        rest=parts[3] if len(parts) == 4 else b"",
                        authorization=self._for_the_app(request.authorization),
                    )
                else:
                    session = await self._terminal(scope, request, parts)
                    await session.begin()
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
            self._sockets -= 1
            metrics.in_flight -= 1

    async def _terminal(self, scope: Scope, request: Parsed, parts: list[bytes]) -> Terminal:
        if len(parts) != 4 or parts[1] != b"sbx" or parts[3] != b"terminal":
            raise no_such_route(scope["path"])
        asked = TerminalRequest.parse(scope["query_string"])
        sandbox_id = parts[2].decode("latin-1")
        tenant = self._authenticate(bearer(request.authorization) or asked.token or "", sandbox_id)
        route = await self._ready(sandbox_id, tenant, receive=None)
        return Terminal(pool=self._pool, route=route, request=asked)


def _hide_the_sidecars_end(
    status: int, headers: Headers, body: bytes | None
) -> tuple[int, Headers, bytes | None]:
    """A sidecar whose sandbox has ended says so (410 `ended`) before the directory knows: one answer for both."""
    if status != 410 or not body:
        return status, headers, body
    with contextlib.suppress(msgspec.DecodeError):
        document = msgspec.json.decode(body)
        if isinstance(document, dict) and document.get("error") == "ended":
            verdict = document.get("verdict")
            refusal = sandbox_not_found(
                verdict=verdict if isinstance(verdict, str) else None,
                message=str(document.get("message") or "the sandbox has ended"),
                may_have_run=False,
            )
            body = msgspec.json.encode(refusal.document)
            length = (b"content-length", b"%d" % len(body))
            return 502, [(b"content-type", b"application/json"), length, *refusal.headers], body
    return status, headers, body
