"""Reports pools in their status and in metrics; counts alone are debounced."""

from __future__ import annotations

from collections.abc import Callable, Set

from sandlot_kube.objects import SandboxPool

from ..metrics import Metrics
from ..plan import status
from ..plan.status import PoolCounts
from .api import Api
from .status_writer import StatusWriter

_STATES = ("ready", "starting", "claimed", "size")
_CLAIMED = 12.0  # intervals before a change of the claimed count alone is written


class PoolStatuses:
    """Writes pool statuses; counts alone only after they differed for `interval` s, and once per `interval`."""

    def __init__(
        self,
        api: Api,
        *,
        interval: float,
        metrics: Metrics,
        clock: Callable[[], float],
        look: Callable[[], None],
    ) -> None:
        """`look` is called after a write, since changes during it were not written."""
        self._api = api
        self._interval = interval
        self._metrics = metrics
        self._writer = StatusWriter(clock=clock, written=lambda _: look())
        self._shown: set[str] = set()
        self._told_at: dict[str, float] = {}
        self._differs_since: dict[str, float] = {}

    def tell(self, pool: SandboxPool, counts: PoolCounts, *, now: float) -> float | None:
        """Report a pool; returns at once, with the time to call again if a write is deferred."""
        name = pool.metadata.name
        self._shown.add(name)
        for state in _STATES:
            self._metrics.pool.labels(name, state).set(getattr(counts, state))
        self._metrics.pool_failures.labels(name).set(counts.failures)
        patch = status.pool(pool, counts, now=self._api.now())
        if patch is None:
            self._differs_since.pop(name, None)  # a claim and its replacement cancel out
            return None
        if (until := self._writer.waits_until(pool)) is not None:
            return until
        if not status.urgent(pool, patch):
            since = self._differs_since.setdefault(name, now)
            due = max(since, self._told_at.get(name, since)) + self._patience(patch)
            if now < due:
                return due
        if self._writer.write(pool, lambda: self._api.patch_pool_status(pool, patch)):
            self._told_at[name] = now
            self._differs_since.pop(name, None)
        return None

    def _patience(self, patch: status.Patch) -> float:
        """Return how long to wait; writing each change of the claimed count would cost every sandbox two writes."""
        return self._interval * (_CLAIMED if patch["status"].keys() == {"claimed"} else 1)

    def keep(self, pools: Set[str]) -> None:
        """Forget other pools."""
        for name in self._shown - pools:
            self._shown.discard(name)
            for state in _STATES:
                self._metrics.pool.remove(name, state)
            self._metrics.pool_failures.remove(name)
            self._told_at.pop(name, None)
            self._differs_since.pop(name, None)
            self._writer.forget(name)

    async def close(self) -> None:
        await self._writer.close()
