"""Shares the places of a gateway's UDP clients: a tenant or an exposure with few gets one of another with many."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from . import udp_limits

Port = tuple[str, int]  # tenant, number


class Client(Protocol):
    """A client in a place."""

    began_at: float
    heard_at: float
    datagrams: int  # that came from it


C = TypeVar("C", bound=Client)


class Places(Generic[C]):
    """The clients by tenant and port. `evict` ends one and returns after `give_back` was called for it."""

    def __init__(self) -> None:
        self.taken = 0
        self._tenants: dict[str, int] = {}
        self._ports: dict[Port, dict[C, Callable[[], None]]] = {}

    def take(self, port: Port, client: C, *, evict: Callable[[], None]) -> None:
        self._ports.setdefault(port, {})[client] = evict
        self._tenants[port[0]] = self._tenants.get(port[0], 0) + 1
        self.taken += 1

    def give_back(self, port: Port, client: C) -> None:
        """Free the client's place; nothing if it has none any more."""
        clients = self._ports.get(port, {})
        if clients.pop(client, None) is None:
            return
        if not clients:
            del self._ports[port]
        self._tenants[port[0]] -= 1
        if not self._tenants[port[0]]:
            del self._tenants[port[0]]
        self.taken -= 1

    def clients(self) -> Iterable[C]:
        for clients in self._ports.values():
            yield from clients

    def has_room(self, port: Port) -> bool:
        """Return whether a new client of this port may have a place, after the end of another one if need be."""
        own = self._ports.get(port, {})
        if len(own) >= udp_limits.FLOWS:
            return self._evict_from(port, active=False)
        if self.taken < udp_limits.ALL_FLOWS:
            return True
        tenant = max(self._tenants, key=self._tenants.__getitem__)
        other = self._tenants[tenant] > self._tenants.get(port[0], 0) + 1
        if not other:
            tenant = port[0]
        largest = max(
            (each for each in self._ports if each[0] == tenant),
            key=lambda each: len(self._ports[each]),
            default=port,
        )
        if other or len(self._ports.get(largest, ())) > len(own) + 1:
            return self._evict_from(largest, active=True)
        return self._evict_from(port, active=False)

    def _evict_from(self, port: Port, *, active: bool) -> bool:
        """End the oldest client of one datagram, whose address may be forged, or, `active`, the longest silent one."""
        clients = self._ports.get(port, {})
        before = time.monotonic() - udp_limits.YOUNG
        chosen = longest = None
        for client in clients:  # the oldest first
            if client.began_at > before:
                break
            if client.datagrams <= 1:
                chosen = client
                break
            if active and (longest is None or client.heard_at < longest.heard_at):
                longest = client
        chosen = chosen or longest
        if chosen is None:
            return False
        clients[chosen]()
        return True
