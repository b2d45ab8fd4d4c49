"""The data plane's ASGI app: routes requests, counts and logs them, and answers failures."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time

from sandlot_contract.headers import VERDICT_KEY

from .core.run_tally import RunTally
from .credentials import bearer
from .data.access import AccessLog, request_ids
from .data.answers import Receive, Refusal, Scope, Send, gateway_ended, send_json, unauthorized, unexpected
from .data.breaker import Limits
from .data.errors import ClientGone
from .data.expose import Exposures
from .data.expose_http import ExposedHttp
from .data.forward import Truncated
from .data.mounted import APP, Mounted
from .data.pacing import Pacing
from .data.pool import HttpPool
from .data.progress import Progress
from .data.request import Parsed, sandbox_in, sort_headers
from .data.request_gate import RequestGate
from .data.request_id import identify
from .data.routes import ApiKeys, Route, Routes
from .data.sandbox_http import ROUTES, SandboxHttp
from .data.server import DROPPED
from .data.socket_plane import SocketPlane
from .data.time_slices import TimeSlices
from .data.wire import Headers
from .metrics import Metrics
from .rpc.plane import SERVICE, RpcPlane
from .tokens import Tokens
from .tracing.requests import about, add_sidecar_call, failure
from .tracing.tracing import Tracing

log = logging.getLogger("sandlot.data")
_LAST_WORD = 0.2  # seconds for the answer to a request that is cut; a hurried end waits for it


class DataPlane:
    """ASGI app for `/sbx/{sandbox_id}/…` and `/expose/{exposure_id}/…`, HTTP and WebSocket."""

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
        tracing: Tracing | None = None,
        tally: RunTally | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self._metrics = metrics
        self._tally = tally or RunTally(since=time.time())
        self.e2b: Mounted | None = None  # below /e2b, and at names of its own, if the operator wants it
        request_gate = self.request_gate = self._request_gate = RequestGate(
            routes=routes, tokens=tokens, api_keys=api_keys, metrics=metrics, limits=self.limits
        )
        self.breaker = request_gate.breaker
        self.inside = request_gate.inside
        self._pacing = Pacing()
        turns = self.turns = TimeSlices(
            cores=len(os.sched_getaffinity(0)), wanted=lambda: self._pacing.starved
        )
        tracing = tracing or Tracing()
        self._sandbox = SandboxHttp(request_gate=request_gate, pool=pool, turns=turns, tracing=tracing)
        self._rpc = RpcPlane(request_gate=request_gate, pool=pool, turns=turns, tracing=tracing)
        self._exposed = ExposedHttp(exposures=exposures, routes=routes, pool=pool)
        self._sockets = SocketPlane(
            request_gate=request_gate,
            pool=pool,
            metrics=metrics,
            exposed=self._exposed,
            mounted=lambda: self.e2b,
        )
        self._access = AccessLog(self.limits.access_log)
        self._tasks: set[asyncio.Task[None]] = set()
        metrics.live(
            "sandlot_queue_depth", "Requests waiting for a permit.", read=lambda: self.breaker.waiting
        )
        metrics.live("sandlot_running", "Requests holding a permit.", read=lambda: self.breaker.running)
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
        self._pacing.request(in_flight=len(self._tasks))
        try:
            if scope["type"] == "http":
                await self._http(scope, receive, send)
            else:
                await self._sockets.serve(scope, receive, send)
        finally:
            self._tasks.discard(task)

    def is_known(self, scope: Scope) -> bool:
        """Return whether a request has a valid credential; for an exposure this is its path, checked later."""
        parts: list[bytes] = scope["raw_path"].split(b"/", 3)
        if parts[1] == b"e2b" or APP in scope:
            return self.e2b is not None and self.e2b.is_known(scope)
        if parts[1] != b"sbx":
            return True
        authorization = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        try:
            self._request_gate.authenticate(bearer(authorization), sandbox_in(parts[2]))
        except Refusal:
            return False
        return True

    async def drain(self, timeout: float) -> int:
        """Reject new requests, wait up to `timeout` seconds for those in flight; return how many were cancelled.

        Those that this process sends itself are neither rejected nor, if they begin later, cancelled.
        """
        self._request_gate.draining = True
        left = set(self._tasks)
        if left:
            _, left = await asyncio.wait(left, timeout=timeout)
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
        is_app = APP in scope
        mounted = self.e2b if is_app or (len(parts) > 1 and parts[1] == b"e2b") else None
        rest = parts[3] if len(parts) == 4 else b""
        segment = rest.partition(b"/")[0]
        rpc = segment == SERVICE and parts[1] == b"sbx"
        name = "expose" if exposed else "rpc" if rpc else ROUTES.get(segment, "other")
        if mounted is not None:
            name = "expose" if is_app else "e2b"
        metrics = self._metrics.routes[name]
        metrics.in_flight += 1
        request = sort_headers(scope["headers"])
        request_id = identify(request.request_id)
        if not request.request_id:
            request.lines.append(b"x-request-id: " + request_id + b"\r\n")
        status: int | str = "gone"
        verdict = b""
        headers: Headers = []
        progress = Progress()
        try:
            try:
                if DROPPED in scope and self.is_known(
                    scope
                ):  # its key became valid after its body was dropped
                    raise unauthorized()
                if not rpc and mounted is None:
                    self._request_gate.check_open(scope)
                if exposed:
                    status, _ = await self._serve_exposed(scope, receive, send, request, parts)
                elif mounted is not None:
                    status, verdict = await mounted.http(scope, receive, send, request_id=request_id)
                elif rpc:
                    status, verdict = await self._rpc.http(
                        scope,
                        receive,
                        send,
                        request=request,
                        request_id=request_id,
                        parts=parts,
                        progress=progress,
                    )
                else:
                    status, headers = await self._sandbox.http(
                        scope, receive, send, request=request, parts=parts, name=name, progress=progress
                    )
                    for key, value in headers:
                        if key == VERDICT_KEY:
                            verdict = value
            except Refusal as refusal:
                status = refusal.status
                refusal.headers.append((b"x-request-id", request_id))
                if self._request_gate.draining:
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
            ids = request_ids(request_id, sandbox=b"" if exposed or mounted else parts[2], op=request.op)
            log.warning("response truncated: %s", error, extra=ids)
        except asyncio.CancelledError:
            if self._request_gate.draining:
                status = "cut"
                metrics.unfinished("cut")
                await _last_word(send, gateway_ended(), request_id=request_id)
            raise
        except Exception:
            log.exception(
                "a request failed in an unexpected way", extra={"request": request_id.decode("latin-1")}
            )
            if await _last_word(send, unexpected(), request_id=request_id):
                status = 503
                metrics.finished(status, verdict=b"", seconds=time.perf_counter() - started)
            else:
                status = "cut"
                metrics.unfinished("cut")
        finally:
            metrics.in_flight -= 1
            if progress.command is not None:
                progress.command.end(
                    self._tally,
                    queued=progress.queued,
                    op=request.op,
                    headers=headers,
                    verdict=verdict,
                )
            trace = progress.trace
            if trace is not None and trace.sampled:
                error = failure(status)
                add_sidecar_call(trace, headers, name=name, error=error)
                told = about(
                    sandbox=parts[2], op=request.op, request_id=request_id, status=status, verdict=verdict
                )
                trace.finish(f"sandlot.{name}", begin=round(started * 1e9), attributes=told, error=error)
            if self._access.share:
                self._access.write(
                    method=scope["method"],
                    route=name,
                    status=status,
                    seconds=time.perf_counter() - started,
                    ids=request_ids(
                        request_id,
                        sandbox=b"" if exposed or mounted or len(parts) < 3 else parts[2],
                        op=request.op,
                    ),
                    queued=progress.queued,
                    verdict=verdict,
                )

    async def _serve_exposed(
        self, scope: Scope, receive: Receive, send: Send, request: Parsed, parts: list[bytes]
    ) -> tuple[int, Headers]:
        lanes: list[str] = []

        def admit(route: Route) -> None:
            lane = (
                f"{route.sandbox_id}/expose"  # a lane of its own: a page's long polls must not block commands
            )
            self._request_gate.enter_now(lane, tenant=route.tenant, name="expose")
            lanes.append(lane)

        try:
            return await self._exposed.http(
                scope,
                receive,
                send,
                request=request,
                parts=parts,
                authorization=self._request_gate.for_the_app(request.authorization),
                admit=admit,
            )
        finally:
            for lane in lanes:
                self._request_gate.leave(lane)


async def _last_word(send: Send, refusal: Refusal, *, request_id: bytes) -> bool:
    """Answer a request that is cut with an error that clients retry, instead of the server's 500; return whether it did."""
    # RuntimeError: the response has started; it ends with its connection. TimeoutError: the client does not read.
    with contextlib.suppress(RuntimeError, TimeoutError):
        async with asyncio.timeout(_LAST_WORD):
            headers = [*refusal.headers, (b"x-request-id", request_id)]
            await send_json(send, refusal.status, refusal.document, headers=headers)
            return True
    return False
