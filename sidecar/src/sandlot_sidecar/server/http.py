"""Routing: authenticates requests and runs their handlers; an unexpected exception is a logged 503, never a hang."""

from __future__ import annotations

import asyncio
from _operator import _compare_digest as compare_digest

from ..core.errors import ApiError, ClientGone
from . import log, trace
from .connection import Connection
from .tasks import Tasks
from .untrusted_connections import UntrustedConnections

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from .request import Request

    Handler = Callable[[Request], Coroutine[Any, Any, None] | None]

NOBODY, INSTANCE, SANDBOX, EITHER = "nobody", "instance", "sandbox", "either"


class Route:
    """A handler and the conditions for calling it."""

    __slots__ = ("handler", "needs", "shielded", "streams", "upgrades")

    def __init__(
        self,
        handler: Handler,
        *,
        needs: str = SANDBOX,
        streams: bool = False,
        shielded: bool = False,
        upgrades: bool = False,
    ) -> None:
        self.handler = handler
        self.needs = needs  # whose token it needs
        self.streams = streams  # the handler runs before the body has arrived
        self.shielded = shielded  # the handler continues if the client disconnects
        self.upgrades = upgrades


class Http:
    """Holds the routes, the tokens and the open connections."""

    def __init__(self, *, instance_token: str) -> None:
        self._instance = b"Bearer " + instance_token.encode()
        self._sandbox: bytes | None = None
        self._routes: dict[str, dict[str, Route]] = {}
        self._late: dict[str, Callable[[], None]] = {}
        self._connections: set[Connection] = set()
        self._strangers = UntrustedConnections()
        self._tasks = Tasks()
        self.requests = 0
        self.draining = False
        self.gate: Callable[[], None] = _open_gate

    def add(self, method: str, path: str, route: Route) -> None:
        """Register a route; `{id}` in a path stands for an op id."""
        self._routes.setdefault(path, {})[method] = route

    def add_late(self, path: str, load: Callable[[], None]) -> None:
        """Register a path whose routes `load` adds upon the first request for it."""
        self._late[path] = load

    def set_sandbox_token(self, token: str | None) -> None:
        """Set the claim's token; None: the instance lost its owner, whose unfinished requests are cut."""
        self._sandbox = None if token is None else b"Bearer " + token.encode()
        if token is None:
            for connection in list(self._connections):
                connection.end_use()

    # -- connections -----------------------------------------------------------------------------------------

    def connect(self) -> Connection:
        """Return the protocol of a new connection (the protocol factory)."""
        return Connection(self)

    def opened(self, connection: Connection) -> None:
        """Register a connection, as untrusted until it shows a token."""
        self._connections.add(connection)
        self._strangers.add(connection)

    def closed(self, connection: Connection) -> None:
        """Unregister a connection."""
        self._connections.discard(connection)
        self._strangers.remove(connection)

    async def close(self) -> None:
        """Finish the requests in progress, then close every connection."""
        self.draining = True
        for connection in list(self._connections):
            connection.close_when_idle()
        await self._tasks.wait(timeout=5.0)
        self._tasks.cancel()
        for connection in list(self._connections):
            connection.abort()

    # -- requests --------------------------------------------------------------------------------------------

    def admit(self, request: Request) -> None:
        """Find the route and check the token before a body is read. Raises ApiError."""
        self.requests += 1
        if self.draining:
            request.keep_alive = False
        methods = self._find(request)
        route = methods.get(request.method) if methods else None
        if route is None or route.needs is not NOBODY:
            self._authorize(request, route)
        if methods is None:
            raise ApiError(404, "no_such_route", "no such route: see docs/sidecar-contract.md")
        if route is None:
            allow = ", ".join(sorted(methods))
            raise ApiError(
                405, "method_not_allowed", f"this route supports only {allow}", headers=(("Allow", allow),)
            )
        request.route = route
        if route.needs is SANDBOX:
            self.gate()

    def _find(self, request: Request) -> dict[str, Route] | None:
        path = request.path
        methods = self._routes.get(path)
        if methods is None and path.startswith("/v1/ops/"):
            request.match, slash, action = path[8:].partition("/")
            if request.match:
                return self._routes.get("/v1/ops/{id}" + slash + action)
        if methods is None and path in self._late:
            self._late[path]()
            return self._routes[path]
        return methods

    def _authorize(self, request: Request, route: Route | None) -> None:
        shown = request.headers.get(b"authorization")
        if shown is None:
            raise _unauthorized()
        needs = EITHER if route is None else route.needs
        sandbox = self._sandbox
        if needs is SANDBOX and sandbox is None:
            raise ApiError(409, "not_claimed", "this instance has no owner: claim it first")
        good = False
        if needs is not SANDBOX:
            good = compare_digest(shown, self._instance)
        if needs is not INSTANCE and sandbox is not None:
            good = compare_digest(shown, sandbox) or good
        if not good:
            raise _unauthorized()
        connection = request.connection
        if not connection.trusted:
            connection.trust()
            self._strangers.remove(connection)

    def handle(self, request: Request) -> None:
        """Run the handler; a coroutine runs as a task of the server's."""
        route = request.route
        try:
            if route.needs is SANDBOX:
                self.gate()  # again: a reset may have begun while the body arrived
            work = route.handler(request)
        except ApiError as error:
            request.respond_error(error)
        except Exception as error:
            self._failed(request, error)
        else:
            if work is not None:
                request.shielded = route.shielded
                request.task = self._tasks.spawn(self._run(request, work))

    async def _run(self, request: Request, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except ApiError as error:
            self._late_error(request, error)
        except ClientGone:
            return
        except asyncio.CancelledError:
            if not request.gone:
                request.connection.abort()
            raise
        except Exception as error:
            self._failed(request, error)

    def _late_error(self, request: Request, error: ApiError) -> None:
        if request.started and not request.answered:
            request.connection.abort()  # part of the response is out: only a cut connection shows that it is incomplete
        else:
            request.respond_error(error)

    def _failed(self, request: Request, error: Exception) -> None:
        ids = trace.ids(trace.of(request))
        log.failure("handler_failed", error, method=request.method, path=request.path, **ids)
        self._late_error(request, ApiError(503, "internal", "the sidecar failed unexpectedly: see its log"))


def _open_gate() -> None:
    return


def _unauthorized() -> ApiError:
    return ApiError(
        401, "unauthorized", "the token is missing or wrong: send the instance's or the sandbox's"
    )
