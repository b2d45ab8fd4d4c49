"""Serves `/sbx/{sandbox_id}/command_session.CommandSession/{method}`: admission first, then Connect."""

from __future__ import annotations

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from sandlot_contract.headers import QUEUED_KEY

from ..credentials import bearer
from ..data.answers import Receive, Refusal, Scope, Send
from ..data.errors import ClientGone
from ..data.pool import HttpPool
from ..data.progress import Progress
from ..data.request import Parsed, sandbox_in
from ..data.request_gate import RequestGate
from ..data.run_command import RunCommand
from ..data.time_slices import TimeSlices
from ..tracing.tracing import Tracing
from .call import Call, current
from .failures import of_refusal, send_error
from .generated.command_session_connect import CommandSessionASGIApplication
from .outbox import Inbox, Outbox
from .service import Sessions

SERVICE = b"command_session.CommandSession"
_STREAMS = frozenset({"Start", "Connect", "StreamInput"})
_UNARY = frozenset({"SendInput", "SendSignal", "Update", "List"})
_STREAM_TYPES = frozenset({b"application/connect+proto", b"application/connect+json"})
_UNARY_TYPES = frozenset({b"application/proto", b"application/json"})
_MAX_MESSAGE = 16 << 20  # bytes of a request
_TIMEOUT = b"connect-timeout-ms"
# The sidecar ends a command at its time limit, with a verdict; Connect would only end the stream. Milliseconds
# after which Connect's deadline ends it, in case the sidecar is lost.
_GRACE = 1000
# All clients offer gzip; Connect would then compress every event.
_NOT_FOR_CONNECT = frozenset({b"accept-encoding", b"connect-accept-encoding"})


class RpcPlane:
    """Serves RPCs; as in SandboxHttp, a Start holds a permit until its stream ends, other methods take none."""

    def __init__(
        self, *, request_gate: RequestGate, pool: HttpPool, turns: TimeSlices, tracing: Tracing
    ) -> None:
        self._request_gate = request_gate
        self._tracing = tracing
        self._pool = pool
        self._turns = turns
        self._app = CommandSessionASGIApplication(Sessions(), read_max_bytes=_MAX_MESSAGE)

    async def http(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        request: Parsed,
        request_id: bytes,
        parts: list[bytes],
        progress: Progress,
    ) -> tuple[int, bytes]:
        """Serve one RPC; return the HTTP status, and the verdict if the command ended here. Raises ClientGone."""
        try:
            self._request_gate.check_open(scope)
            return await self._http(
                scope, receive, send, request=request, request_id=request_id, parts=parts, progress=progress
            )
        except _InvalidRequest as unfit:
            error, status = unfit.error, unfit.status
        except Refusal as refusal:
            error, status = of_refusal(refusal), None
        headers = [(b"x-request-id", request_id)]
        if self._request_gate.draining:
            headers.append((b"connection", b"close"))
        return await send_error(send, error, status=status, headers=headers), b""

    async def _http(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        request: Parsed,
        request_id: bytes,
        parts: list[bytes],
        progress: Progress,
    ) -> tuple[int, bytes]:
        method = parts[3][len(SERVICE) + 1 :].decode("latin-1")
        kinds = _STREAM_TYPES if method in _STREAMS else _UNARY_TYPES if method in _UNARY else None
        if kinds is None:
            raise _InvalidRequest(501, Code.UNIMPLEMENTED, f"unknown method {method[:100]!r}")
        if scope["method"] != "POST":
            raise _InvalidRequest(405, Code.UNIMPLEMENTED, "the method must be POST")
        headers, timeout_ms = _sorted(scope, kinds=kinds, is_start=method == "Start")
        request_gate = self._request_gate
        sandbox_id = sandbox_in(parts[2])
        tenant = request_gate.authenticate(bearer(request.authorization), sandbox_id)
        trace = None
        if request.traceparent or self._tracing.samples:
            trace = progress.trace = self._tracing.enter(request.traceparent, tenant=tenant)
        body = None if method == "StreamInput" else await _read(receive)
        watched = None if body is None else receive
        route = await request_gate.ready(sandbox_id, tenant, receive=watched)
        takes_place = method == "Start"
        waited = takes_place and not request_gate.try_enter(sandbox_id, tenant=tenant, name="rpc")
        passed = [(b"x-request-id", request_id)]
        if trace is not None:
            passed.append(trace.header(trace.root))
        if waited:
            queued = progress.queued = await request_gate.enter(
                sandbox_id, tenant=tenant, name="rpc", receive=watched
            )
            passed.append((QUEUED_KEY, b"%.6f" % queued))
        turn = None
        inbox, outbox = Inbox(receive, body=body), Outbox(send)
        try:
            if waited:  # the sandbox may have ended meanwhile
                route = await request_gate.ready(sandbox_id, tenant, receive=watched)
            if takes_place and route.address.startswith("unix:"):
                turn = await self._turns.enter(sandbox_id)
            if takes_place and route.run is not None:
                progress.command = RunCommand(route, route.run, None)
            call = Call(
                pool=self._pool,
                request_gate=request_gate,
                route=route,
                outbox=outbox,
                headers=passed,
                timeout_ms=timeout_ms,
                command=progress.command,
            )
            token = current.set(call)
            try:
                inner = {
                    **scope,
                    "path": f"/{SERVICE.decode()}/{method}",
                    "root_path": "",
                    "headers": headers,
                }
                await self._app(inner, inbox, outbox)  # pyright: ignore[reportArgumentType]
            finally:
                current.reset(token)
        finally:
            if turn is not None:
                self._turns.leave(turn)
            if takes_place:
                request_gate.leave(sandbox_id)
        if inbox.gone:
            raise ClientGone
        return outbox.status, call.verdict


class _InvalidRequest(Exception):
    """Raised for a request that Connect would answer without a message, or not at all."""

    def __init__(self, status: int, code: Code, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.error = ConnectError(code, message)


def _sorted(
    scope: Scope, *, kinds: frozenset[bytes], is_start: bool
) -> tuple[list[tuple[bytes, bytes]], int | None]:
    """Return the headers for Connect, and a Start's time limit, which the sidecar enforces. Raises _Unfit."""
    headers: list[tuple[bytes, bytes]] = []
    content_type = b""
    timeout_ms: int | None = None
    for name, value in scope["headers"]:
        if name == b"content-type":
            content_type = value = value.partition(b";")[0].strip().lower()
        elif name == _TIMEOUT and is_start:
            if not value.isdigit() or len(value) > 10:
                raise _InvalidRequest(
                    400, Code.INVALID_ARGUMENT, "connect-timeout-ms: must be at most 10 digits"
                )
            timeout_ms = int(value)
            value = b"%d" % min(timeout_ms + _GRACE, 9_999_999_999)
        if name not in _NOT_FOR_CONNECT:
            headers.append((name, value))
    if content_type not in kinds:
        wanted = b" or ".join(sorted(kinds)).decode()
        raise _InvalidRequest(415, Code.INVALID_ARGUMENT, f"content-type: must be {wanted}")
    return headers, timeout_ms


async def _read(receive: Receive) -> bytes:
    """Read the whole body. Raises ClientGone, _Unfit."""
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > _MAX_MESSAGE + 5:
            raise _InvalidRequest(
                413, Code.RESOURCE_EXHAUSTED, f"the request is larger than {_MAX_MESSAGE} bytes"
            )
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
