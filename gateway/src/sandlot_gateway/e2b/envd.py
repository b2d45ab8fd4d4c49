"""Serves envd's routes: authenticates a request, takes its place in the sandbox's queue, and answers in envd's forms."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from sandlot_gateway.data.answers import Receive, Scope, Send, send_json
from sandlot_gateway.data.disconnects import ReadAhead, cancel_on_disconnect
from sandlot_gateway.data.errors import ClientGone
from sandlot_gateway.data.pool import HttpPool
from sandlot_gateway.data.request_gate import RequestGate
from sandlot_gateway.data.time_slices import TimeSlices

from . import filesystem, process
from .access import Access, Caller
from .entrance import Entrance
from .envelope import HEADER, EnvelopeReader, only
from .failures import EnvdFailure, invalid, translated
from .file_query import FileQuery, file_query
from .files import Files
from .messages import StreamInput, read
from .rpc_stream import RpcStream
from .sidecar_call import SidecarCall
from .uploads import whole_body
from .watchers import Watchers

_PROCESS, _FILESYSTEM = "process.Process/", "filesystem.Filesystem/"
_Unary = Callable[[SidecarCall, bytes], Coroutine[Any, Any, dict[str, Any]]]
_UNARY: dict[str, _Unary] = {
    f"{_PROCESS}List": process.list_,
    f"{_PROCESS}SendInput": process.send_input,
    f"{_PROCESS}SendSignal": process.send_signal,
    f"{_PROCESS}CloseStdin": process.close_stdin,
    f"{_PROCESS}Update": process.update,
    f"{_FILESYSTEM}Stat": filesystem.stat_,
    f"{_FILESYSTEM}MakeDir": filesystem.make_dir,
    f"{_FILESYSTEM}Move": filesystem.move,
    f"{_FILESYSTEM}ListDir": filesystem.list_dir,
    f"{_FILESYSTEM}Remove": filesystem.remove,
}
_WATCH = f"{_FILESYSTEM}WatchDir"
_STREAMS = frozenset({*(f"{_PROCESS}{name}" for name in ("Start", "Connect", "StreamInput")), _WATCH})
_SIGNED = {"GET": "read", "POST": "write"}  # operations of signed URLs to /files
_HEALTH_TIMEOUT = 4.0  # seconds; the SDK waits 5
_MAX_TIMEOUT_DIGITS = 10

Done = TypeVar("Done")


class Envd:
    """Requests that steer or watch a process take no place: queued behind commands that wait, they would deadlock."""

    def __init__(
        self, *, access: Access, gate: RequestGate, pool: HttpPool, turns: TimeSlices, entrance: Entrance
    ) -> None:
        self._access = access
        self._gate = gate
        self._pool = pool
        self._turns = turns
        self._entrance = entrance
        self._watchers = Watchers()
        self._unary: dict[str, _Unary] = {
            **_UNARY,
            f"{_FILESYSTEM}CreateWatcher": self._watchers.create,
            f"{_FILESYSTEM}GetWatcherEvents": self._watchers.events,
            f"{_FILESYSTEM}RemoveWatcher": self._watchers.remove,
        }

    def is_known(self, scope: Scope, route: str) -> bool:
        """Return whether the request is authenticated; otherwise its body is not buffered."""
        try:
            self._caller(scope, _query(scope, route))
        except EnvdFailure:
            return False
        return True

    async def http(
        self, scope: Scope, receive: Receive, send: Send, *, route: str, request_id: bytes
    ) -> tuple[int, bytes]:
        """Answer one request; return its status, and the verdict if a command ended. Raises ClientGone, Truncated."""
        stream = RpcStream(send, receive, request_id=request_id) if route in _STREAMS else None
        try:
            query = _query(scope, route)
            caller = await self._access.served(self._caller(scope, query))
            with translated(self._gate, caller.sandbox_id):
                self._gate.check_open(scope)
                status = await self._answer(
                    scope,
                    receive,
                    send,
                    route=route,
                    caller=caller,
                    query=query,
                    request_id=request_id,
                    stream=stream,
                )
        except EnvdFailure as failure:
            if stream is not None and stream.begun:
                await stream.end(failure)
                return 200, stream.verdict
            plain = route in ("health", "files")
            status = failure.http_status if plain else failure.rpc_status
            document = failure.http_document() if plain else failure.rpc_document()
            headers = failure.headers(status, request_id, draining=self._gate.draining)
            await send_json(send, status, document, headers=headers)
        return status, b"" if stream is None else stream.verdict

    def _caller(self, scope: Scope, query: FileQuery | None) -> Caller:
        return self._access.caller(scope, query=query, operation=_SIGNED.get(scope["method"]))

    async def _answer(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        route: str,
        caller: Caller,
        query: FileQuery | None,
        request_id: bytes,
        stream: RpcStream | None,
    ) -> int:
        method: str = scope["method"]
        if route == "health":
            await self._health(caller, request_id)
            head = [(b"x-request-id", request_id)]
            await send({"type": "http.response.start", "status": 204, "headers": head})
            await send({"type": "http.response.body", "body": b""})
            return 204
        if query is not None:
            if method not in _SIGNED:
                raise EnvdFailure("unimplemented", f"{method}: /files has GET and POST", status=405)
            files = Files(scope, receive, send, query=query, request_id=request_id)
            async with self._entrance.entered(caller, request_id, receive=None, takes_place=True) as call:
                return await (files.download(call) if method == "GET" else files.upload(call))
        self._check_rpc(scope, route)
        if stream is None:
            body = await whole_body(receive)
            takes_place = route.startswith(_FILESYSTEM)
            async with self._entrance.entered(
                caller, request_id, receive=receive, takes_place=takes_place
            ) as call:
                found = await _while_there(self._unary[route](call, body), ReadAhead(receive), more=False)
            await send_json(send, 200, found, headers=[(b"x-request-id", request_id)])
            return 200
        await self._stream(scope, receive, route=route, caller=caller, request_id=request_id, stream=stream)
        return 200

    async def _stream(
        self,
        scope: Scope,
        receive: Receive,
        *,
        route: str,
        caller: Caller,
        request_id: bytes,
        stream: RpcStream,
    ) -> None:
        if route.endswith("/StreamInput"):
            async with self._entrance.entered(caller, request_id, receive=None, takes_place=False) as call:
                await _stream_input(call, ReadAhead(receive))
            stream.add({})
            await stream.end()
            return
        body = only(await whole_body(receive, more=HEADER))
        if route == _WATCH:
            async with self._entrance.entered(caller, request_id, receive=receive, takes_place=False) as call:
                await self._watchers.stream(call, body, stream)
            return
        starts = route.endswith("/Start")
        timeout_ms = _timeout_ms(scope) if starts else None
        async with self._entrance.entered(caller, request_id, receive=receive, takes_place=starts) as call:
            turn = None
            if starts and call.route.address.startswith("unix:"):
                turn = await self._turns.enter(caller.sandbox_id)
            try:
                if starts:
                    await process.start(call, body, stream, timeout_ms=timeout_ms)
                else:
                    await process.connect(call, body, stream)
            finally:
                if turn is not None:
                    self._turns.leave(turn)
            await stream.end()

    async def _health(self, caller: Caller, request_id: bytes) -> None:
        route = await self._gate.ready(caller.sandbox_id, caller.tenant, receive=None)
        call = SidecarCall(pool=self._pool, route=route, request_id=request_id, user=None)
        answer = await call.fetch("GET", "/v1/state", timeout=_HEALTH_TIMEOUT)
        if answer.status != 200:
            raise call.refused(answer.status, answer.body)

    def _check_rpc(self, scope: Scope, route: str) -> None:
        """Check an RPC's method, name and content type. Raises EnvdFailure."""
        if route not in self._unary and route not in _STREAMS:
            raise EnvdFailure("unimplemented", f"unknown method {route[:100]!r}")
        if scope["method"] != "POST":
            raise EnvdFailure("unimplemented", "the method must be POST")
        wanted = b"application/connect+json" if route in _STREAMS else b"application/json"
        found = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
        if found.partition(b";")[0].strip().lower() != wanted:
            raise EnvdFailure("unimplemented", f"content-type: must be {wanted.decode()}")


def _query(scope: Scope, route: str) -> FileQuery | None:
    """Return the query of a file call. Raises EnvdFailure."""
    return file_query(scope) if route == "files" else None


def _timeout_ms(scope: Scope) -> int | None:
    """Return a command's time limit. Raises EnvdFailure."""
    value = next((value for name, value in scope["headers"] if name == b"connect-timeout-ms"), None)
    if value is None:
        return None
    if not value.isdigit() or len(value) > _MAX_TIMEOUT_DIGITS:
        raise invalid("connect-timeout-ms", f"must be at most {_MAX_TIMEOUT_DIGITS} digits")
    if not int(value):
        raise EnvdFailure("deadline_exceeded", "connect-timeout-ms: must be more than 0")
    return int(value)


async def _while_there(work: Coroutine[Any, Any, Done], receive: ReadAhead, *, more: bool) -> Done:
    """Return the result of `work`, or raise ClientGone: a write waits while a process does not read its input."""
    return await cancel_on_disconnect(work, receive, more=more, undo=lambda _: None)


async def _stream_input(call: SidecarCall, receive: ReadAhead) -> None:
    """Write a stream of messages to a process' input, each once the one before it was taken."""
    reader = EnvelopeReader()
    found: str | None = None
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        more = message.get("more_body", False)
        for payload in reader.feed(message.get("body", b"")):
            part = read(payload, StreamInput)
            if part.start is not None:
                if found is not None:
                    raise invalid("start", "must be sent only once")
                found = await process.op_id(call, part.start.process)
            elif part.data is not None:
                if found is None:
                    raise invalid("start", "must be the first message")
                await _while_there(process.write(call, found, part.data.input.data()), receive, more=more)
    reader.finish()
