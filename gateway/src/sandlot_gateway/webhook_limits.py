"""Limits what the senders of webhooks may hold: connections without a credential, and bytes of bodies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from sandlot_contract.ids import InstanceId


@dataclass(frozen=True)
class Bounds:
    """Limits; a stranger is a connection without a valid credential so far."""

    strangers: int = 2048
    strangers_of_peer: int = 256  # several nodes' sidecars may share one address behind NAT
    bytes_in_flight: int = 32 << 20
    bytes_of_instance: int = 16 << 20


@dataclass
class Budget:
    """Reserved bytes of request bodies, in total and by instance."""

    bounds: Bounds
    taken: int = 0
    by_instance: dict[InstanceId, int] = field(default_factory=dict[InstanceId, int])

    def take(self, instance_id: InstanceId, size: int) -> bool:
        own = self.by_instance.get(instance_id, 0) + size
        if self.taken + size > self.bounds.bytes_in_flight or own > self.bounds.bytes_of_instance:
            return False
        self.taken += size
        self.by_instance[instance_id] = own
        return True

    def give(self, instance_id: InstanceId, size: int) -> None:
        self.taken -= size
        left = self.by_instance[instance_id] - size
        if left:
            self.by_instance[instance_id] = left
        else:
            del self.by_instance[instance_id]


class Cuttable(Protocol):
    """A connection."""

    def cut(self) -> None:
        """Close without a response."""
        ...


class Connections:
    """All open connections, and the strangers among them in order of arrival."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self.open: set[Cuttable] = set()
        self._strangers: dict[Cuttable, None] = {}
        self.of_peer: dict[str, dict[Cuttable, None]] = {}

    def came(self, connection: Cuttable, peer: str | None) -> None:
        """Add a connection; at the limit, drop the oldest stranger, since a sidecar authenticates at once."""
        self.open.add(connection)
        self._strangers[connection] = None
        if len(self._strangers) > self._bounds.strangers:
            next(iter(self._strangers)).cut()
        if peer is not None:
            of_peer = self.of_peer.setdefault(peer, {})
            of_peer[connection] = None
            if len(of_peer) > self._bounds.strangers_of_peer:
                next(iter(of_peer)).cut()

    def known(self, connection: Cuttable, peer: str | None) -> None:
        """Mark a connection as authenticated."""
        self._strangers.pop(connection, None)
        if peer is not None and (of_peer := self.of_peer.get(peer)) is not None:
            of_peer.pop(connection, None)
            if not of_peer:
                del self.of_peer[peer]

    def went(self, connection: Cuttable, peer: str | None) -> None:
        self.known(connection, peer)
        self.open.discard(connection)
