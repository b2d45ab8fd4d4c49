"""Dependencies of the control routes, and the caller's authentication."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sandlot_contract.ids import SandboxId

from sandlot_gateway import local_images, logs, registries
from sandlot_gateway.audit.call import note
from sandlot_gateway.checkpoints.service import Checkpoints
from sandlot_gateway.checkpoints.temporary import Temporary
from sandlot_gateway.control.counters import Counters
from sandlot_gateway.control.errors import ApiError, not_found, not_known_yet
from sandlot_gateway.control.field_types import SandboxIdInPath
from sandlot_gateway.control.pool_limits import PoolLimits
from sandlot_gateway.core.backend import Backend
from sandlot_gateway.data.expose import Exposures
from sandlot_gateway.directory import Directory
from sandlot_gateway.engine.lifecycle import Lifecycle
from sandlot_gateway.engine.runs import Runs
from sandlot_gateway.engine.supply import Supply
from sandlot_gateway.events.service import Events
from sandlot_gateway.keys import Keys, Tenant
from sandlot_gateway.prices import PriceList
from sandlot_gateway.quotas import Quotas
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.settings import Settings
from sandlot_gateway.sidecars import Sidecars
from sandlot_gateway.ssh.sessions import SshSessions
from sandlot_gateway.tokens import Tokens
from sandlot_gateway.tracing.tracing import Tracing
from sandlot_gateway.usage.accounts import Accounts


@dataclass(slots=True)
class Services:
    """The parts of the gateway that routes use; `is_ready`: recovery is complete, shutdown has not begun."""

    settings: Settings
    keys: Keys
    quotas: Quotas
    pool_limits: PoolLimits
    prices: PriceList
    tokens: Tokens
    backend: Backend
    directory: Directory
    supply: Supply
    lifecycle: Lifecycle
    sidecars: Sidecars
    exposures: Exposures
    runs: Runs
    checkpoints: Checkpoints | None  # None without a directory for them
    temporary: Temporary | None  # None without checkpoints
    ssh: SshSessions | None  # None without a port for them
    counters: Counters
    accounts: Accounts
    events: Events
    tracing: Tracing
    metrics_text: Callable[[], bytes]
    is_ready: Callable[[], bool]

    async def learn_claims(self, who: Tenant) -> None:
        """Learn of the caller's sandboxes that other gateways have just made, before its sandboxes are listed."""
        if self.backend.others is not None:
            await self.backend.others.learn_claims(who.name)


async def services(request: Request) -> Services:
    return request.app.state.services


Have = Annotated[Services, Depends(services)]

bearer = HTTPBearer(auto_error=False, description="An API key.")


async def caller(
    have: Have, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]
) -> Tenant:
    tenant = have.keys.find(credentials.credentials) if credentials is not None else None
    if tenant is None:
        raise ApiError(
            401,
            "the API key is missing or unknown: send Authorization: Bearer KEY",
            headers={"www-authenticate": "Bearer"},
        )
    return tenant


Who = Annotated[Tenant, Depends(caller)]


def images_refusal(image: str, *, have: Services, who: Tenant) -> str | None:
    """Return why this key may not use an image, or None if it may; images of its pools are allowed."""
    why = registries.refusal(image, allowed=have.settings.registries)
    if why is not None or have.settings.backend != "local" or who.operates:
        return why
    pools = [status.spec for status in have.backend.pools() if who.may_use(status.spec.owner)]
    if any(pool.template.image == image for pool in pools):
        return None
    return local_images.refusal(image, allowed=have.settings.local_images)


async def appeared(
    sandbox_ids: Collection[SandboxId], directory: Directory, *, tenant: str
) -> frozenset[SandboxId]:
    """Wait for sandboxes that other gateways may have just created, and return those that may still come.

    503 if one may, and the tenant has none of the others either: then there is nothing to do yet.
    """
    await directory.all_appear(sandbox_ids)
    late = [sandbox_id for sandbox_id in sandbox_ids if directory.may_come(sandbox_id)]
    if late and not any(directory.of_tenant(sandbox_id, tenant) for sandbox_id in sandbox_ids):
        raise not_known_yet(late[0])
    return frozenset(late)


async def seen(sandbox_id: SandboxIdInPath, have: Have, who: Who) -> Sandbox:
    """Return the caller's sandbox with this id, without using it; 404 otherwise."""
    await appeared([sandbox_id], have.directory, tenant=who.name)
    sandbox = have.directory.of_tenant(sandbox_id, who.name)
    if sandbox is None:
        raise not_found(sandbox_id)
    logs.sandbox_id.set(sandbox_id)
    note(run=sandbox.spec.run)
    return sandbox


async def owned(sandbox_id: SandboxIdInPath, have: Have, who: Who) -> Sandbox:
    """Return the caller's sandbox with this id, whose caller has not left then; 404 otherwise."""
    sandbox = await seen(sandbox_id, have, who)
    have.lifecycle.ends.orphans.used(sandbox_id)
    return sandbox


# Seconds to wait for a PENDING sandbox: a client that gets PENDING sleeps a second or more before the next poll.
READY_HOLD = 1.0
Owned = Annotated[Sandbox, Depends(owned)]
Seen = Annotated[Sandbox, Depends(seen)]
