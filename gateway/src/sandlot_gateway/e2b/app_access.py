"""Who may reach an app's port at its host name, and which sandbox serves it now."""

from __future__ import annotations

from sandlot_contract.ids import SandboxId

from sandlot_gateway.control.services import Services
from sandlot_gateway.data.answers import Refusal, Scope
from sandlot_gateway.data.mounted import APP
from sandlot_gateway.data.request_gate import RequestGate
from sandlot_gateway.data.routes import Route
from sandlot_gateway.keys import plain_key
from sandlot_gateway.sandboxes import Sandbox

from .app_refusals import (
    TRAFFIC_KEY,
    no_port,
    no_token,
    not_found,
    of_problem,
    of_refusal,
    paused,
    port_closed,
)
from .failures import Problem
from .paths import AppHost
from .pauses import PAUSED, Pauses
from .request_parts import header_of
from .serving import Serving


class AppAccess:
    """The token of a sandbox's apps opens them, as do the sandbox's access token and an API key of its tenant.

    Nobody else gets more than the answer that a token is missing, unless the operator has public ports.
    """

    def __init__(self, have: Services, *, serving: Serving, gate: RequestGate) -> None:
        self._have = have
        self._serving = serving
        self._gate = gate
        self._pauses = Pauses(have)
        self._public = have.settings.e2b_public_ports
        self._share_network = have.settings.backend == "local"  # but for those without a network
        self.limit = gate.limits.per_sandbox

    def is_known(self, scope: Scope) -> bool:
        """Return whether the request may be served; otherwise its body is not buffered."""
        app: AppHost = scope[APP]
        return self._tenant(scope, app.sandbox_id) is not None or self._visited(app.sandbox_id) is not None

    async def target(self, scope: Scope) -> tuple[Route, Sandbox]:
        """Return where the app is. Raises Refusal."""
        app: AppHost = scope[APP]
        if app.port == 0:
            raise no_port(app)
        if not app.sandbox_id:
            raise not_found(app)
        tenant = self._tenant(scope, app.sandbox_id)
        if tenant is None:
            tenant = self._visitor(app, given=bool(header_of(scope, TRAFFIC_KEY)))
        try:
            self._gate.check_open(scope)
            route, sandbox = await self._served(app, tenant)
        except Refusal as refusal:
            raise of_refusal(app, refusal, limit=self.limit) from refusal
        except Problem as problem:
            raise of_problem(app, problem) from problem
        if is_sidecars(route.address, app.port):
            raise port_closed(app)
        return route, sandbox

    async def _served(self, app: AppHost, tenant: str) -> tuple[Route, Sandbox]:
        found = await self._serving.find(app.sandbox_id, tenant)
        if found is None and await self._is_paused(app.sandbox_id, tenant):
            raise paused(app)
        route = await self._gate.ready(app.sandbox_id if found is None else found.id, tenant, receive=None)
        sandbox = self._have.directory.get(route.sandbox_id)
        if sandbox is None:
            raise not_found(app)
        return route, sandbox

    async def _is_paused(self, sandbox_id: SandboxId, tenant: str) -> bool:
        lane = f"{sandbox_id}/expose"  # so that pages that go on asking make so many reads at once
        self._gate.enter_now(lane, tenant=tenant, name="expose")
        try:
            return await self._pauses.find(tenant, sandbox_id) is not None
        finally:
            self._gate.leave(lane)

    def _tenant(self, scope: Scope, sandbox_id: SandboxId) -> str | None:
        """Return whose credential the request has; None without a valid one."""
        tokens, keys = self._have.tokens, self._have.keys
        for token in (header_of(scope, TRAFFIC_KEY), header_of(scope, b"x-access-token")):
            tenant = tokens.check_traffic(token, sandbox_id) or tokens.check_client(token, sandbox_id)
            if tenant is not None:
                return tenant
        key = header_of(scope, b"x-api-key")
        return keys.tenant(plain_key(key, keys)) if key else None

    def _visitor(self, app: AppHost, *, given: bool) -> str:
        """Return the tenant of a sandbox whose ports are public. Raises Refusal."""
        if not self._public:
            raise no_token(app, given=given)  # also for a sandbox that does not exist
        found = self._visited(app.sandbox_id)
        if found is None:
            live = self._have.directory.serving(app.sandbox_id) is not None
            raise no_token(app, given=given) if live else not_found(app)
        if not found.live:
            # Anybody could make this gateway read the volume and ask other gateways, which would know more.
            raise paused(app)
        return found.tenant

    def _visited(self, sandbox_id: SandboxId) -> Sandbox | None:
        """Return a sandbox with public ports, live or paused, as far as this gateway knows."""
        if not self._public:
            return None
        directory = self._have.directory
        found = directory.serving(sandbox_id) or directory.get(sandbox_id)
        if found is None or not self._is_public(found):
            return None
        return found if found.live or found.message == PAUSED else None

    def _is_public(self, sandbox: Sandbox) -> bool:
        """Return whether its create left its ports public; ports of the machine's own network never are."""
        spec = sandbox.spec
        if spec.ports is None or not spec.ports.public:
            return False
        return spec.network == "none" or not self._share_network


def is_sidecars(address: str, port: int) -> bool:
    """Return whether a sandbox's port is that of its sidecar, which in a pod listens beside the apps."""
    return not address.startswith("unix:") and address.rpartition(":")[2] == str(port)
