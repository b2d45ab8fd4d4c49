"""Serves `/sbx/{sandbox_id}/…`: the listed routes of a sandbox's sidecar, under the sidecar's own token."""

from __future__ import annotations

import contextlib

import msgspec
from sandlot_contract.headers import QUEUED_KEY

from sandlot_gateway.core.bad_json import NOT_JSON

from ..credentials import bearer
from ..tracing.trace import now
from ..tracing.tracing import Tracing, without_traceparent
from .answers import (
    Receive,
    Refusal,
    Scope,
    Send,
    no_such_route,
    sandbox_not_found,
    sidecar_lost,
    token_rejected,
    unreachable,
)
from .errors import ClientGone, DialError, UpstreamError
from .forward import RequestHead, forward
from .pool import HttpPool
from .progress import Progress
from .request import Parsed, climbs, sandbox_in
from .request_gate import RequestGate
from .run_command import RunCommand
from .time_slices import TimeSlices
from .wire import Headers

# First segment after /sbx/{id}/ -> route class. The sidecar's other routes (claim, reset, end, state, metrics,
# healthz, tcp) are for the gateway only.
ROUTES = {
    b"exec": "exec",
    b"ops": "ops",
    b"files": "files",
    b"upload": "files",
    b"download": "files",
    b"read-file": "files",
    b"logs": "logs",
}
WATCH = b"files/watch"  # the sidecar has a limit of its own


class SandboxHttp:
    """Forwards requests; those that start or move something take a permit of the breaker.

    Those that steer or watch an op that has one already (stdin, signal, resize, look, kill, attach, logs) do not:
    queued behind 256 commands that wait for their stdin, they would deadlock. Nor does a watch of files, which is
    open as long as its client likes.
    """

    def __init__(
        self, *, request_gate: RequestGate, pool: HttpPool, turns: TimeSlices, tracing: Tracing
    ) -> None:
        self._request_gate = request_gate
        self._tracing = tracing
        self._pool = pool
        self._turns = turns

    async def http(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        request: Parsed,
        parts: list[bytes],
        name: str,
        progress: Progress,
    ) -> tuple[int, Headers]:
        """Serve a request of route class `name`; note in `progress` how far it came, even if this raises."""
        if len(parts) != 4 or parts[1] != b"sbx" or name == "other":
            raise no_such_route(scope["path"])
        rest = parts[3]
        if climbs(rest):
            raise Refusal(400, "bad_path", "the path must not contain '.' or '..' segments", field="path")
        request_gate = self._request_gate
        sandbox_id = sandbox_in(parts[2])
        tenant = request_gate.authenticate(bearer(request.authorization), sandbox_id)
        trace = None
        if request.traceparent or self._tracing.samples:
            trace = progress.trace = self._tracing.enter(request.traceparent, tenant=tenant)
        first = await receive()
        if first["type"] == "http.disconnect":
            raise ClientGone
        watched = None if first.get("more_body", False) else receive
        route = await request_gate.ready(sandbox_id, tenant, receive=watched)
        method: str = scope["method"]
        takes_place = (
            name == "exec" or (name == "files" and rest != WATCH) or (method == "POST" and rest == b"ops")
        )
        if trace is not None:
            trace.queueing = now()
        waited = takes_place and not request_gate.try_enter(sandbox_id, tenant=tenant, name=name)
        if waited:
            queued = progress.queued = await request_gate.enter(
                sandbox_id, tenant=tenant, name=name, receive=watched
            )
            request.lines.append(b"%b: %.6f\r\n" % (QUEUED_KEY, queued))
        turn = None
        try:
            if waited:  # the sandbox may have ended meanwhile
                route = await request_gate.ready(sandbox_id, tenant, receive=watched)
            query: bytes = scope["query_string"]
            lines = [
                b"%b /v1/%b HTTP/1.1\r\nhost: sidecar\r\nauthorization: Bearer %b\r\n"
                % (method.encode(), b"%b?%b" % (rest, query) if query else rest, route.token.encode()),
                *(without_traceparent(request.lines) if request.traceparent else request.lines),
            ]
            if trace is not None:
                lines.append(b"%b: %b\r\n" % trace.header(trace.call))
            # The load of other machines is unknown here.
            is_command = takes_place and name != "files"
            if is_command and route.address.startswith("unix:"):
                turn = await self._turns.enter(sandbox_id)
            if is_command and route.run is not None:
                progress.command = RunCommand(route, route.run, first.get("body", b""))
                if first.get("more_body", False):
                    receive = progress.command.collecting(receive)
            if trace is not None:
                trace.queued = now()
            return await forward(
                pool=self._pool,
                key=route.address,
                head=RequestHead(lines, request.length, method),
                first=first,
                receive=receive,
                send=send,
                edit=_edit,
                trace=trace,
            )
        except DialError as error:
            request_gate.check_alive(sandbox_id, may_have_run=False)
            raise unreachable(error) from error
        except UpstreamError as error:
            request_gate.check_alive(sandbox_id, may_have_run=True)
            raise sidecar_lost(error) from error
        finally:
            if turn is not None:
                self._turns.leave(turn)
            if takes_place:
                request_gate.leave(sandbox_id)


def _edit(status: int, headers: Headers, body: bytes | None) -> tuple[int, Headers, bytes | None]:
    """Replace two sidecar responses: the end of the sandbox, and the rejection of the gateway's token.

    A sidecar answers 410 `ended` before the directory knows of the end; clients get the same response for both.
    """
    if status == 401 and body is not None:
        # A 401 would tell the client that its own token is wrong, which it cannot fix.
        return _answer(token_rejected())
    if status != 410 or not body:
        return status, headers, body
    with contextlib.suppress(*NOT_JSON):
        document = msgspec.json.decode(body)
        if isinstance(document, dict) and document.get("error") == "ended":
            verdict = document.get("verdict")
            refusal = sandbox_not_found(
                verdict=verdict if isinstance(verdict, str) else None,
                message=str(document.get("message") or "the sandbox has ended"),
                may_have_run=document.get("may_have_run") is True,
            )
            return _answer(refusal)
    return status, headers, body


def _answer(refusal: Refusal) -> tuple[int, Headers, bytes]:
    body = msgspec.json.encode(refusal.document)
    length = (b"content-length", b"%d" % len(body))
    return refusal.status, [(b"content-type", b"application/json"), length, *refusal.headers], body
