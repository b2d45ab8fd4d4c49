"""Counts each tenant's creates against a rate and a burst: token buckets that begin full."""

from __future__ import annotations


class CreateRates:
    """Keeps how much of its burst a tenant has spent; rate and burst come with each call, since they may change."""

    def __init__(self) -> None:
        self._spent: dict[
            str, tuple[float, float]
        ] = {}  # tenant -> creates not made up for yet, at this time

    def spent(self, tenant: str, *, rate: float, now: float) -> float:
        """Return how many creates of the burst are spent."""
        spent, at = self._spent.get(tenant, (0.0, now))
        return max(0.0, spent - (now - at) * rate)

    def wait(self, tenant: str, *, rate: float, burst: int, now: float, count: int = 1) -> float:
        """Return the seconds until the tenant may create `count` more; 0: now."""
        missing = self.spent(tenant, rate=rate, now=now) + count - burst
        # Rounding must not refuse a caller that comes back on time.
        return missing / rate if missing > 1e-6 else 0.0

    def spend(self, tenant: str, *, rate: float, now: float) -> None:
        """Count a create."""
        self._spent[tenant] = (self.spent(tenant, rate=rate, now=now) + 1, now)

    def give_back(self, tenant: str, *, rate: float, now: float) -> None:
        """Take back the count of a create, which may be made up for by now."""
        self._spent[tenant] = (max(0.0, self.spent(tenant, rate=rate, now=now) - 1), now)
