"""Says why a create that waits for an instance may have to wait for long."""

from __future__ import annotations

from sandlot_gateway.core.backend import Backend
from sandlot_gateway.core.supply import SupplyCore
from sandlot_gateway.core.supply_events import AskId


def trouble(core: SupplyCore, backend: Backend, ask: AskId) -> str | None:
    """Return why no start for this create, or of a pool that could serve it, has led to an instance yet.

    None if that is unknown, or it does not wait.
    """
    if (waiter := core.waiters.get(ask)) is None:
        return None
    for status in backend.pools():
        spec = status.spec
        serves = not spec.template.image and spec.owner in (None, waiter.tenant)
        if serves and status.failures and status.message and core.slots.kind(spec.template) == waiter.key:
            return f"pool {spec.name!r} has failed to start a slot: {status.message}"
    if (why := core.refusals.why(waiter.key)) is not None:
        return why
    start = waiter.value.start
    started = core.starts[start].instance_id if start is not None else None
    if start is not None and started is None:
        return None  # its launch has not returned, and what others wait for is another thing
    return backend.unplaced(waiter.template, tenant=waiter.tenant, started=started)
