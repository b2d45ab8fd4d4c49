"""Admits requests to sandboxes: checks credentials, waits for a starting sandbox and for a permit."""

from __future__ import annotations

import asyncio

from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status

from ..credentials import bearer
from ..inside import Inside
from ..metrics import Metrics
from ..tokens import Tokens
from .answers import Receive, Refusal, Scope, sandbox_not_found, unauthorized, unavailable
from .breaker import Abandoned, Breaker, Limits, Overloaded
from .disconnects import wait_for_disconnect
from .errors import ClientGone
from .routes import ApiKeys, Route, Routes


class RequestGate:
    """Admission of requests; methods raise Refusal to reject, and ClientGone when the client left meanwhile."""

    def __init__(
        self, *, routes: Routes, tokens: Tokens, api_keys: ApiKeys, metrics: Metrics, limits: Limits
    ) -> None:
        self.limits = limits
        self.breaker = Breaker(limits)
        self.draining = False
        self.inside = Inside()
        self._routes = routes
        self._tokens = tokens
        self._api_keys = api_keys
        self._metrics = metrics

    def check_open(self, scope: Scope) -> None:
        """Refuse a request while the gateway drains, unless one in flight needs it."""
        if self.draining and not self.inside.sent(scope["headers"]):
            raise self.unavailable(
                "draining", "the gateway is shutting down: send the request again, to another gateway"
            )

    def unavailable(self, error: str, message: str) -> Refusal:
        return unavailable(error, message, retry_after=self.limits.retry_after)

    def authenticate(self, token: str, sandbox_id: SandboxId) -> str:
        """Return the tenant of a client token for this sandbox, or of an API key."""
        if token:
            if token.startswith("sct_"):
                tenant = self._tokens.check_client(token, sandbox_id)
            else:
                tenant = self._api_keys.tenant(token)
            if tenant is not None:
                return tenant
        raise unauthorized()

    def for_the_app(self, authorization: bytes) -> bytes:
        """Return the header to forward to an app: b"" for a gateway credential, which a sandbox must not see."""
        token = bearer(authorization)
        ours = token.startswith("sct_") or (token and self._api_keys.tenant(token) is not None)
        return b"" if ours else authorization

    async def ready(self, sandbox_id: SandboxId, tenant: str, *, receive: Receive | None) -> Route:
        """Return the route of a running sandbox of this tenant; wait if it is starting or not known yet.

        `receive` reports that the client left; None while the request's body has not been read.
        """
        route = self._routes.find(sandbox_id)
        if route is None or (route.tenant == tenant and route.status is Status.PENDING):
            await self._wait_ready(sandbox_id, receive=receive)
            route = self._routes.find(sandbox_id)
        if route is None and self._routes.may_come(sandbox_id):
            raise self.unavailable(
                "sandbox_not_known_yet",
                "this gateway does not know the sandbox yet: try again after Retry-After",
            )
        if route is None or route.tenant != tenant:
            raise sandbox_not_found(verdict=None, message=None)
        if route.status is Status.PENDING:
            raise self.unavailable(
                "sandbox_pending", "the sandbox is still starting: try again after Retry-After"
            )
        if route.status is not Status.RUNNING:
            raise sandbox_not_found(verdict=route.verdict, message=route.message)
        self._routes.touched(sandbox_id)
        return route

    def check_alive(self, sandbox_id: SandboxId, *, may_have_run: bool) -> None:
        """Raise Refusal if the sandbox has ended, which is why its sidecar cannot be reached."""
        route = self._routes.find(sandbox_id)
        if route is None or route.status not in (Status.PENDING, Status.RUNNING):
            raise sandbox_not_found(
                verdict=route.verdict if route else None,
                message=route.message if route else None,
                may_have_run=may_have_run,
            )

    def try_enter(self, lane: str, *, tenant: str, name: str) -> bool:
        """Return whether a permit was free, to be released with `leave`; if not, `enter` waits for one.

        `name`: the request's route class.
        """
        try:
            return self.breaker.try_enter(lane, tenant=tenant)
        except Overloaded as error:
            raise self._busy(error, name) from error

    async def enter(self, lane: str, *, tenant: str, name: str, receive: Receive | None) -> float:
        """Wait for a permit, to be released with `leave`; return the seconds waited."""
        gone = None if receive is None else lambda: wait_for_disconnect(receive)
        try:
            queued = await self.breaker.enter(lane, tenant=tenant, gone=gone)
        except Abandoned as error:
            raise ClientGone from error
        except Overloaded as error:
            raise self._busy(error, name) from error
        self._metrics.queue_seconds.observe(queued)
        return queued

    def enter_now(self, lane: str, *, tenant: str, name: str) -> None:
        """Take a permit without waiting, to be released with `leave`."""
        if not self.try_enter(lane, tenant=tenant, name=name):
            raise self._busy(Overloaded(self.breaker.full(lane)), name)

    def leave(self, lane: str) -> None:
        self.breaker.leave(lane)

    async def _wait_ready(self, sandbox_id: SandboxId, *, receive: Receive | None) -> None:
        loop = asyncio.get_running_loop()
        tasks: set[asyncio.Task[object]] = {
            loop.create_task(self._routes.wait_ready(sandbox_id, self.limits.pending_wait))
        }
        leaving = None if receive is None else loop.create_task(wait_for_disconnect(receive))
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

    def _busy(self, error: Overloaded, name: str) -> Refusal:
        self._metrics.rejected.labels(name, error.full.scope).inc()
        where = "this sandbox" if error.full.scope == "sandbox" else "the gateway"
        return unavailable(
            "busy",
            f"the queue of {where} is full: send fewer requests at once, or try again after Retry-After",
            retry_after=self.limits.retry_after,
            may_have_run=False,
            **error.full.document(),
        )
