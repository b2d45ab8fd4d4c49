"""What the data plane serves of E2B: its control API, and of each sandbox envd, code interpreter and ports of apps."""

from __future__ import annotations

from sandlot_gateway import logs
from sandlot_gateway.control.paths import e2b_route, is_code, is_envd
from sandlot_gateway.control.services import Services
from sandlot_gateway.data.answers import Receive, Scope, Send
from sandlot_gateway.data.mounted import APP, Session
from sandlot_gateway.data.pool import HttpPool
from sandlot_gateway.data.request_gate import RequestGate
from sandlot_gateway.data.routes import Route
from sandlot_gateway.data.time_slices import TimeSlices

from .access import Access
from .apps import Apps
from .control import Control
from .entrance import Entrance
from .envd import Envd
from .interpreter import Interpreter
from .serving import Serving


class E2bPlane:
    def __init__(self, have: Services, *, gate: RequestGate, pool: HttpPool, turns: TimeSlices) -> None:
        self._serving = serving = Serving(have.directory, others=have.backend.others)
        access = Access(keys=have.keys, tokens=have.tokens, serving=serving)
        self._control = Control(have, access=access, serving=serving, gate=gate, pool=pool)
        entrance = Entrance(gate=gate, pool=pool)
        self._envd = Envd(access=access, gate=gate, pool=pool, turns=turns, entrance=entrance)
        self._interpreter = Interpreter(access=access, gate=gate, entrance=entrance)
        self._apps = Apps(have, serving=serving, gate=gate, pool=pool)

    def is_known(self, scope: Scope) -> bool:
        """Return whether a request is authenticated; otherwise its body is not buffered."""
        if APP in scope:
            return self._apps.is_known(scope)
        route = e2b_route(scope["path"])
        if is_code(route):
            return self._interpreter.is_known(scope, route)
        if is_envd(route):
            return self._envd.is_known(scope, route)
        return self._control.is_known(scope)

    def start(self) -> None:
        """Begin what goes on without requests."""
        self._control.start()

    async def close(self) -> None:
        await self._control.close()
        await self._interpreter.close()
        await self._serving.close()

    async def http(
        self, scope: Scope, receive: Receive, send: Send, *, request_id: bytes
    ) -> tuple[int, bytes]:
        """Serve one request; return its status, and the verdict if a command ended.

        Raises Refusal, ClientGone, Truncated.
        """
        if APP in scope:
            return await self._apps.http(scope, receive, send, request_id=request_id)
        route = e2b_route(scope["path"])
        if is_code(route):
            return await self._interpreter.http(scope, receive, send, route=route, request_id=request_id)
        if is_envd(route):
            return await self._envd.http(scope, receive, send, route=route, request_id=request_id)
        logs.request_id.set(request_id.decode("latin-1"))  # for the audit, and the sidecar's log
        return await self._control.http(scope, receive, send, route=route, request_id=request_id), b""

    async def socket(self, scope: Scope) -> tuple[Route, Session]:
        """Return what serves a WebSocket of an app, and whose it is. Raises Refusal."""
        return await self._apps.socket(scope)
