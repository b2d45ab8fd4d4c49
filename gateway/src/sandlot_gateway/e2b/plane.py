"""What the data plane serves below /e2b: E2B's control API, and envd and the code interpreter of each sandbox."""

from __future__ import annotations

from sandlot_gateway import logs
from sandlot_gateway.control.paths import e2b_route, is_code, is_envd
from sandlot_gateway.control.services import Services
from sandlot_gateway.data.answers import Receive, Scope, Send
from sandlot_gateway.data.pool import HttpPool
from sandlot_gateway.data.request_gate import RequestGate
from sandlot_gateway.data.time_slices import TimeSlices

from .access import Access
from .control import Control
from .entrance import Entrance
from .envd import Envd
from .interpreter import Interpreter
from .serving import Serving


class E2bPlane:
    def __init__(self, have: Services, *, gate: RequestGate, pool: HttpPool, turns: TimeSlices) -> None:
        serving = Serving(have.directory, others=have.backend.others)
        access = Access(keys=have.keys, tokens=have.tokens, serving=serving)
        self._control = Control(have, access=access, serving=serving, gate=gate, pool=pool)
        entrance = Entrance(gate=gate, pool=pool)
        self._envd = Envd(access=access, gate=gate, pool=pool, turns=turns, entrance=entrance)
        self._interpreter = Interpreter(access=access, gate=gate, entrance=entrance)

    def is_known(self, scope: Scope) -> bool:
        """Return whether a request is authenticated; otherwise its body is not buffered."""
        route = e2b_route(scope["path"])
        if is_code(route):
            return self._interpreter.is_known(scope)
        if is_envd(route):
            return self._envd.is_known(scope, route)
        return self._control.is_known(scope)

    def start(self) -> None:
        """Begin what goes on without requests."""
        self._control.start()

    async def close(self) -> None:
        await self._control.close()

    async def http(
        self, scope: Scope, receive: Receive, send: Send, *, request_id: bytes
    ) -> tuple[int, bytes]:
        """Serve one request; return its status, and the verdict if a command ended.

        Raises ClientGone, Truncated.
        """
        route = e2b_route(scope["path"])
        if is_code(route):
            return await self._interpreter.http(scope, receive, send, route=route, request_id=request_id)
        if is_envd(route):
            return await self._envd.http(scope, receive, send, route=route, request_id=request_id)
        logs.request_id.set(request_id.decode("latin-1"))  # for the audit, and the sidecar's log
        return await self._control.http(scope, receive, send, route=route, request_id=request_id), b""
