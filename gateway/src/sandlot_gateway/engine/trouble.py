"""Says why a create that waits for an instance may have to wait for long."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sandlot_gateway.core.backend import Backend
from sandlot_gateway.core.instances import PoolStatus
from sandlot_gateway.core.supply import SupplyCore
from sandlot_gateway.core.supply_events import AskId

Pools = Callable[[], Sequence[PoolStatus]]


def trouble(core: SupplyCore, backend: Backend, ask: AskId, pools: Pools | None = None) -> str | None:
    """Return why no start for this create, or of a pool that could serve it, has led to an instance yet.

    None if that is unknown, or it does not wait. `pools`: returns those of the backend, which takes long to build for
    each of many creates.
    """
    if (waiter := core.asks.get(ask)) is None:
        return None
    for status in (pools or backend.pools)():
        if not status.failures or not status.message:
            continue
        spec = status.spec
        serves = not spec.template.image and spec.owner in (None, waiter.tenant)
        if serves and core.slots.kind(spec.template) == waiter.key:
            return f"pool {spec.name!r} has failed to start a slot: {status.message}"
    if (why := core.refusals.why(waiter.key)) is not None:
        return why
    start = waiter.value.start
    started = core.starts[start].instance_id if start is not None else None
    if start is not None and started is None:
        return None  # its launch has not returned, and what others wait for is another thing
    return backend.unplaced(waiter.template, tenant=waiter.tenant, started=started)
