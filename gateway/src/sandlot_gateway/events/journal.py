"""Keeps the latest events of all tenants: what the directory of sandboxes tells, within bounds of number and memory."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from sandlot_gateway.sandboxes import Sandbox

from .event import Event, EventType, event_of
from .tenant import OVERLAP, TenantEvents


class Journal:
    """One per gateway process. Only the directory of sandboxes decides what has happened to a sandbox; this is a memory
    of what it told, which a restart fills again from the sandboxes that are still known.
    """

    def __init__(
        self, *, entries: int, memory: int, keep: float, clock: Callable[[], float] = time.time
    ) -> None:
        """`entries`: of each tenant; `memory`: bytes of all; `keep`: seconds, but at least as long as gateways may need
        to learn of each other's.
        """
        self.id = secrets.token_hex(4)
        self._entries = entries
        self._memory = memory
        self._keep = max(keep, 2 * OVERLAP)
        self._clock = clock
        self._bytes = 0
        self._recovering = True
        self._known_since = clock()
        self._dropped_until = 0.0
        self._tenants: dict[str, TenantEvents] = {}
        self.closed = False

    def __len__(self) -> int:
        return sum(map(len, self._tenants.values()))

    @property
    def bytes(self) -> int:
        return self._bytes

    def now(self) -> float:
        return self._clock()

    def of(self, tenant: str) -> TenantEvents:
        found = self._tenants.get(tenant)
        if found is None:
            found = self._tenants[tenant] = TenantEvents(
                journal=self.id, known_since=self._known_since, dropped_until=self._dropped_until
            )
        return found

    def recovered(self, *, known_since: float, alone: bool = False) -> None:
        """Put what the recovery found in order. `known_since`: the time from which on that is complete.

        `alone`: no other gateway has what is older.
        """
        self._recovering = False
        self._known_since, self._dropped_until = known_since, known_since if alone else 0.0
        for events in self._tenants.values():
            events.known_since, events.dropped_until = self._known_since, self._dropped_until
            events.sort(now=self._clock())
            self._bound(events)

    # What has happened.

    def queued(self, sandbox: Sandbox, *, place: int | None) -> None:
        self.add(sandbox.tenant, event_of(sandbox, EventType.QUEUED, place=place))

    def ready(self, sandbox: Sandbox) -> None:
        self.add(sandbox.tenant, event_of(sandbox, EventType.READY))

    def ended(self, sandbox: Sandbox) -> None:
        self.add(sandbox.tenant, event_of(sandbox, EventType.ENDED))

    def found_ended(self, sandbox: Sandbox) -> None:
        """Add the events of a sandbox that ended before this gateway knew it."""
        if sandbox.started_at is not None:
            self.ready(sandbox)
        self.ended(sandbox)

    def relayed(self, tenant: str, event: Event) -> None:
        """Add another gateway's event, unless this one may have dropped it: it would push out a newer one."""
        if event.happened > self.of(tenant).dropped_until:
            self.add(tenant, event)

    def add(self, tenant: str, event: Event) -> None:
        events = self.of(tenant)
        before = events.bytes
        events.add(event, at=self._clock())
        self._bytes += events.bytes - before
        if not self._recovering:
            self._bound(events)

    def close(self) -> None:
        """Wake all readers, who end when they find it closed."""
        self.closed = True
        for events in self._tenants.values():
            events.wake()

    def _bound(self, events: TenantEvents) -> None:
        before = events.bytes
        events.drop_before(self._clock() - self._keep)
        while len(events) > self._entries:
            events.drop_oldest()
        self._bytes += events.bytes - before
        while self._bytes > self._memory:
            # That of the tenant with the most: one that floods its own must not push out another's.
            largest = max(self._tenants.values(), key=lambda one: one.bytes)
            before = largest.bytes
            largest.drop_oldest()
            self._bytes += largest.bytes - before
