"""Knows since when the silence of a run counts: only while this gateway could hear renewals and read the lease."""

from __future__ import annotations

from collections.abc import Collection

from sandlot_gateway.core.runs import Lease, RunKey

_APART = 2.0  # seconds by which two gateways may know the store's clock differently
_GAP = 3.0  # seconds by which an answer of the store may be late; less than the shortest grace


class RunListening:
    """Times are by the clock of the store."""

    def __init__(self) -> None:
        self.since = float("inf")
        self._reached_at = float("-inf")  # of the store's last answer
        self._readable_since: dict[RunKey, float] = {}  # of leases that could not be read before

    def reached(self, now: float, *, pause: float) -> None:
        """Note an answer of the store, which is read every `pause` seconds.

        Silence before a long pause counts for nothing, be it the store's or our own.
        """
        if now - self._reached_at > pause + _GAP:
            self.since = now
        self._reached_at = now

    def is_deaf(self, lease: Lease, *, now: float) -> bool:
        """Return whether another gateway may read what this one cannot, and find the run silent."""
        return now - self._reached_at > max(lease.grace / 2, _GAP)

    def appeared(self, key: RunKey, lease: Lease, *, looked_at: float, now: float) -> None:
        """Note a lease that was not known. `looked_at`: when the last read of all began.

        If it is older than that, it could not be read then, and neither could its renewals be heard.
        """
        if lease.began_at < looked_at - _APART:
            self._readable_since[key] = now

    def keep(self, keys: Collection[RunKey]) -> None:
        """Forget all other leases."""
        self._readable_since = {key: at for key, at in self._readable_since.items() if key in keys}

    def since_of(self, lease: Lease) -> float:
        return max(self.since, self._readable_since.get((lease.tenant, lease.id), 0.0))
