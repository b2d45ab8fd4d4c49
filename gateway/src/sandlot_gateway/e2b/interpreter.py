"""Serves the routes of E2B's code interpreter: authenticates a request, and answers in the forms that its SDKs read."""

from __future__ import annotations

from sandlot_gateway.data.answers import Receive, Scope, Send, send_json
from sandlot_gateway.data.forward import Truncated
from sandlot_gateway.data.request_gate import RequestGate
from sandlot_gateway.tasks import Tasks

from . import code_cells
from .access import Access, Caller
from .context_room import ContextRoom
from .entrance import Entrance
from .failures import EnvdFailure, translated
from .grouped_response import GroupedResponse
from .paths import CODE_PORT
from .uploads import whole_body

_LINES = b"application/x-ndjson"
_CLOSING = 1.0  # seconds


class Interpreter:
    """Cells and new contexts take a place in the sandbox's queue; what steers contexts takes none."""

    def __init__(self, *, access: Access, gate: RequestGate, entrance: Entrance) -> None:
        self._access = access
        self._gate = gate
        self._entrance = entrance
        self._room = ContextRoom()
        self._tasks = Tasks()

    async def close(self) -> None:
        await self._tasks.close(timeout=_CLOSING)

    def is_known(self, scope: Scope, route: str) -> bool:
        """Return whether the request is authenticated; otherwise its body is not buffered."""
        try:
            self._caller(scope, route)
        except EnvdFailure:
            return False
        return True

    async def http(
        self, scope: Scope, receive: Receive, send: Send, *, route: str, request_id: bytes
    ) -> tuple[int, bytes]:
        """Answer one request; return its status, and the verdict if the context ended. Raises ClientGone, Truncated."""
        stream = GroupedResponse(send, receive, request_id=request_id, content_type=_LINES)
        try:
            caller = await self._access.served(self._caller(scope, route))
            with translated(self._gate, caller.sandbox_id):
                self._gate.check_open(scope)
                status = await self._answer(
                    scope, send, route=route, caller=caller, request_id=request_id, stream=stream
                )
        except EnvdFailure as failure:
            if stream.begun:
                # A response that ends here would be a complete result to the client.
                raise Truncated(str(failure)) from failure
            status = failure.http_status
            headers = failure.headers(status, request_id, draining=self._gate.draining)
            headers.append((b"content-type", b"text/plain; charset=utf-8"))
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": str(failure).encode("utf-8", "replace")})
        return status, stream.verdict

    def _caller(self, scope: Scope, route: str) -> Caller:
        # What steers contexts has no other token from the SDKs; code of an app's user must not run by that.
        return self._access.caller(scope, port=CODE_PORT, traffic=route != "execute")

    async def _answer(
        self,
        scope: Scope,
        send: Send,
        *,
        route: str,
        caller: Caller,
        request_id: bytes,
        stream: GroupedResponse,
    ) -> int:
        receive = stream.receive
        body = await whole_body(receive)
        match scope["method"], route.split("/"):
            case "POST", ["execute"]:
                async with self._entrance.entered(caller, request_id, receive=receive) as call:
                    await code_cells.execute(call, body, stream)
                return 200
            case "POST", ["contexts"]:
                async with self._entrance.entered(caller, request_id, receive=receive) as call:
                    room = self._room if caller.by_traffic_token else None
                    found = await code_cells.create(call, body, receive, tasks=self._tasks, room=room)
                await send_json(send, 200, found, headers=[(b"x-request-id", request_id)])
                return 200
            case "GET", ["contexts"]:
                async with self._entrance.entered(
                    caller, request_id, receive=receive, takes_place=False
                ) as call:
                    contexts = await code_cells.list_(call)
                await send_json(send, 200, contexts, headers=[(b"x-request-id", request_id)])
                return 200
            case ("DELETE", ["contexts", name]) | ("POST", ["contexts", name, "restart"]):
                async with self._entrance.entered(
                    caller, request_id, receive=receive, takes_place=False
                ) as call:
                    if scope["method"] == "DELETE":
                        await code_cells.remove(call, name)
                    else:
                        await code_cells.restart(call, name, receive)
                await send(
                    {"type": "http.response.start", "status": 204, "headers": [(b"x-request-id", request_id)]}
                )
                await send({"type": "http.response.body", "body": b""})
                return 204
            case method, _:
                raise EnvdFailure("unimplemented", f"no such route: {method} /{route[:200]}", status=405)
