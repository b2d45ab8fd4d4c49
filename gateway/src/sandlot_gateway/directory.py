"""Indexes all known sandboxes by id, tenant, label and idempotency key, with the data plane's routes."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Unpack

from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status

from sandlot_gateway.continuations import Continuations
from sandlot_gateway.core.holdings import Holdings
from sandlot_gateway.data.routes import Route
from sandlot_gateway.sandbox_waits import NEW_SECONDS, SandboxWaits
from sandlot_gateway.sandboxes import Sandbox, pending_route
from sandlot_gateway.tenant_index import Conditions, Page, TenantIndex


class Directory:
    """All sandboxes, in memory and for one event loop; what must survive is in the sidecars and the archive.

    `keep` seconds and `limit` bound the ended sandboxes. `patience`: seconds to wait for an unknown sandbox if other
    gateways create some, too. `sought` is called for each unknown one that is not older than `keep`; `missed` for each
    that arrives late, with whether it is new. `elsewhere`: whether another gateway may have one that was sought.
    `unreachable` gets the address of each that ends, to fail waiting calls. `ran` and `dropped` are called for each that
    becomes RUNNING, and that was not after all; `found_ended` for each that is added as ended.
    """

    def __init__(
        self,
        *,
        keep: float = 3600.0,
        limit: int = 10_000,
        patience: float = 0.0,
        ran: Callable[[Sandbox], None] = lambda sandbox: None,
        ended: Callable[[Sandbox], None] | None = None,
        found_ended: Callable[[Sandbox], None] = lambda sandbox: None,
        dropped: Callable[[Sandbox], None] = lambda sandbox: None,
        unreachable: Callable[[str], None] = lambda address: None,
        touched: Callable[[SandboxId], None] | None = None,
        sought: Callable[[SandboxId], None] = lambda sandbox_id: None,
        missed: Callable[[bool], None] = lambda new: None,
        elsewhere: Callable[[SandboxId], bool] = lambda sandbox_id: False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._keep = keep
        self._limit = limit
        self._on_ran = ran
        self._on_ended = ended
        self._on_found_ended = found_ended
        self._on_dropped = dropped
        self._on_unreachable = unreachable
        self._on_touched = touched
        self._clock = clock
        self._sandboxes: dict[SandboxId, Sandbox] = {}
        self._by_tenant: dict[str, TenantIndex] = {}
        self._routes: dict[SandboxId, Route] = {}
        self._by_key: dict[tuple[str, str], SandboxId] = {}
        self._continuations = Continuations()
        self._waits = SandboxWaits(
            keep=keep, patience=patience, sought=sought, missed=missed, elsewhere=elsewhere, clock=clock
        )
        self._ended: OrderedDict[SandboxId, float] = OrderedDict()
        self.holdings = Holdings()  # of live sandboxes
        self.last_end = time.monotonic()  # time of the last end of a sandbox, on the monotonic clock

    # For the data plane (data.routes.Routes).

    def find(self, sandbox_id: SandboxId) -> Route | None:
        route = self._routes.get(sandbox_id)
        if route is None:
            sandbox = self._sandboxes.get(sandbox_id)
            return pending_route(sandbox) if sandbox is not None else None
        return route

    async def wait_ready(self, sandbox_id: SandboxId, timeout: float) -> Route | None:
        await self.appear(sandbox_id)
        await self.changed(sandbox_id, timeout=timeout)
        return self.find(sandbox_id)

    def touched(self, sandbox_id: SandboxId) -> None:
        if self._on_touched is not None:
            self._on_touched(sandbox_id)

    # For the control API.

    def get(self, sandbox_id: SandboxId) -> Sandbox | None:
        return self._sandboxes.get(sandbox_id)

    def of_tenant(self, sandbox_id: SandboxId, tenant: str) -> Sandbox | None:
        """Return the sandbox if the tenant owns it, else None."""
        sandbox = self._sandboxes.get(sandbox_id)
        return sandbox if sandbox is not None and sandbox.tenant == tenant else None

    def current(self, sandbox_id: SandboxId, tenant: str) -> Sandbox | None:
        """Return the tenant's live sandbox that serves the clients of this id: itself, or one that continues it."""
        found = self.serving(sandbox_id)
        return found if found is not None and found.tenant == tenant else None

    def serving(self, sandbox_id: SandboxId) -> Sandbox | None:
        """Return the live sandbox, of any tenant, that serves the clients of this id."""
        own = self._sandboxes.get(sandbox_id)
        return own if own is not None and own.live else self._continuations.live(sandbox_id)

    def by_key(self, tenant: str, key: str) -> Sandbox | None:
        sandbox_id = self._by_key.get((tenant, key))
        return self._sandboxes.get(sandbox_id) if sandbox_id is not None else None

    @property
    def total_live(self) -> int:
        return len(self.holdings)

    def live(self) -> list[Sandbox]:
        """Return the live sandboxes of all tenants. Threads call it, too."""
        # A copy, which is made at once: the loop changes the dictionary while a thread iterates.
        return [sandbox for sandbox in list(self._sandboxes.values()) if sandbox.live]

    def statuses(self, tenant: str) -> Counter[Status]:
        tenant_index = self._by_tenant.get(tenant)
        return (
            Counter(sandbox.status for sandbox in tenant_index.by_id.values()) if tenant_index else Counter()
        )

    def verdicts(self, tenant: str) -> Counter[str]:
        """Count the tenant's ended sandboxes by verdict."""
        tenant_index = self._by_tenant.get(tenant)
        ended = tenant_index.by_id.values() if tenant_index else ()
        return Counter(sandbox.verdict for sandbox in ended if sandbox.verdict is not None)

    def all_statuses(self) -> Counter[Status]:
        """Return the counts over all tenants, with zeros."""
        counts = Counter(sandbox.status for sandbox in self._sandboxes.values())
        return Counter({status: counts[status] for status in Status})

    def list(
        self,
        *,
        tenant: str,
        page: int = 1,
        per_page: int = 50,
        labels: Iterable[str] = (),
        **conditions: Unpack[Conditions],
    ) -> Page:
        """List sandboxes, newest first, that meet all conditions and have all `labels`."""
        tenant_index = self._by_tenant.get(tenant)
        if tenant_index is None:
            return Page([], 0, False)
        return tenant_index.page(page, per_page, labels=labels, **conditions)

    def of_group(self, tenant: str, group_id: str) -> list[Sandbox]:
        """Return the tenant's sandboxes of a group, in no order."""
        tenant_index = self._by_tenant.get(tenant)
        return [] if tenant_index is None else list(tenant_index.by_group.get(group_id, {}).values())

    def young(self, tenant: str) -> list[Sandbox]:
        """Return the tenant's running sandboxes that other gateways may not know yet."""
        since = self._clock() - NEW_SECONDS
        running = self.list(tenant=tenant, status=Status.RUNNING, per_page=1 << 30).sandboxes
        return [sandbox for sandbox in running if sandbox.updated_at > since]

    async def changed(
        self, sandbox_id: SandboxId, *, timeout: float, background: bool = False
    ) -> Sandbox | None:
        """Wait up to `timeout` seconds for a PENDING sandbox to leave that status. `background`: see `SandboxWaits`."""
        sandbox = self._sandboxes.get(sandbox_id)
        if sandbox is None or sandbox.status is not Status.PENDING:
            return sandbox
        await self._waits.change(sandbox_id, timeout=timeout, background=background)
        return self._sandboxes.get(sandbox_id)

    async def appear(self, sandbox_id: SandboxId) -> None:
        """Wait for an unknown sandbox that another gateway may have just created."""
        if sandbox_id not in self._sandboxes:
            await self._waits.appearance(sandbox_id)

    def may_come(self, sandbox_id: SandboxId) -> bool:
        """Return whether another gateway may have an unknown sandbox: it is new, or not all of them have denied it."""
        return sandbox_id not in self._sandboxes and self._waits.may_come(sandbox_id)

    async def all_appear(self, sandbox_ids: Iterable[SandboxId]) -> None:
        """Wait for all of them at the same time, as `appear` does."""
        unknown = [sandbox_id for sandbox_id in sandbox_ids if sandbox_id not in self._sandboxes]
        if unknown:
            await asyncio.gather(*(self.appear(sandbox_id) for sandbox_id in unknown))

    def release(self) -> None:
        """Wake all calls that wait for a change, and let none wait from now on."""
        self._waits.release()

    # Changes.

    def add(self, sandbox: Sandbox) -> None:
        """Add a new or recovered sandbox, whatever its status."""
        self._sandboxes[sandbox.id] = sandbox
        self._by_tenant.setdefault(sandbox.tenant, TenantIndex()).add(sandbox)
        if sandbox.spec.key is not None and sandbox.holds_key:
            self._by_key[sandbox.tenant, sandbox.spec.key] = sandbox.id
        self._continuations.add(sandbox)
        if sandbox.live:
            self._hold(sandbox)
        else:
            self._ended[sandbox.id] = sandbox.ended_at or self._clock()
            self._on_found_ended(sandbox)
            self._forget_old()
        self._waits.wake(sandbox.id)

    def running(self, sandbox: Sandbox, *, address: str, token: str) -> None:
        """Mark a sandbox RUNNING, and route the data plane to its instance."""
        sandbox.status = Status.RUNNING
        if self._sandboxes.get(sandbox.id) is sandbox:  # else it was dropped, and no end would give this back
            self._hold(sandbox)  # its claim may say another size than the record of a pending create
        sandbox.updated_at = self._clock()
        route = pending_route(sandbox)
        self._routes[sandbox.id] = replace(route, address=address, token=token)
        self._on_ran(sandbox)
        self._waits.wake(sandbox.id)

    def pending_again(self, sandbox: Sandbox) -> None:
        """Return a sandbox to PENDING, after a wrong report that it had an instance."""
        sandbox.status, sandbox.instance_id, sandbox.started_at = Status.PENDING, None, None
        sandbox.updated_at = self._clock()
        self._routes.pop(sandbox.id, None)
        self._on_dropped(sandbox)

    def end(
        self, sandbox: Sandbox, *, verdict: str, message: str | None = None, exit_code: int | None = None
    ) -> bool:
        """Record a sandbox's end; return False if it had ended before."""
        if not sandbox.live:
            return False
        sandbox.finish(verdict, at=self._clock(), message=message, exit_code=exit_code)
        if self._sandboxes.get(sandbox.id) is sandbox:  # else it was dropped, and another one may have its id
            self.holdings.release(sandbox.id)
        if not sandbox.holds_key:
            self.release_key(sandbox)
        self.last_end = time.monotonic()
        route = self._routes.pop(sandbox.id, None)
        self._ended[sandbox.id] = sandbox.ended_at or self._clock()
        if self._on_ended is not None:
            self._on_ended(sandbox)
        if route is not None:
            self._on_unreachable(route.address)
        self._waits.wake(sandbox.id)
        self._forget_old()
        return True

    def release_key(self, sandbox: Sandbox) -> None:
        """Release the idempotency key of a sandbox whose request was rejected, so that a new create may use it."""
        key = (sandbox.tenant, sandbox.spec.key or "")
        if self._by_key.get(key) == sandbox.id:
            del self._by_key[key]

    def drop(self, sandbox: Sandbox) -> None:
        """Remove a sandbox that never started, as if it had not been requested."""
        self.holdings.release(sandbox.id)
        if sandbox.live:
            self._on_dropped(sandbox)
        self._ended.pop(sandbox.id, None)
        self._remove(sandbox)
        self._waits.wake(sandbox.id)

    def _hold(self, sandbox: Sandbox) -> None:
        self.holdings.hold(sandbox.id, tenant=sandbox.tenant, amounts=sandbox.spec.amounts())

    def _forget_old(self) -> None:
        since = self._clock() - self._keep
        while self._ended:
            sandbox_id, at = next(iter(self._ended.items()))
            if at >= since and len(self._ended) <= self._limit:
                return
            self._ended.popitem(last=False)
            sandbox = self._sandboxes.get(sandbox_id)
            if sandbox is not None:
                self._remove(sandbox)

    def _remove(self, sandbox: Sandbox) -> None:
        self._sandboxes.pop(sandbox.id, None)
        self._routes.pop(sandbox.id, None)
        if tenant_index := self._by_tenant.get(sandbox.tenant):
            tenant_index.remove(sandbox)
        self._continuations.remove(sandbox)
        self.release_key(sandbox)
