"""Tells what a pool has, in its status and its metrics: what is new at once, counts only when they have lasted a while."""

from __future__ import annotations

from collections.abc import Callable, Set

from sandlot_kube.objects import SandboxPool

from ..metrics import Metrics
from ..plan import status
from ..plan.status import PoolCounts
from .api import Api
from .status_writer import StatusWriter

_STATES = ("ready", "starting", "claimed", "size")
_CLAIMED = 12.0  # intervals for a difference in the number of the claimed alone


class PoolStatuses:
    """`interval`: how long counts must have differed from those told, and how often they are told at most."""

    def __init__(
        self,
        api: Api,
        *,
        interval: float,
        metrics: Metrics,
        clock: Callable[[], float],
        look: Callable[[], None],
    ) -> None:
        """`look` is called when a write is over: what changed meanwhile found its place taken."""
        self._api = api
        self._interval = interval
        self._metrics = metrics
        self._writer = StatusWriter(clock=clock, written=lambda _: look())
        self._shown: set[str] = set()
        self._told_at: dict[str, float] = {}
        self._differs_since: dict[str, float] = {}

    def tell(self, pool: SandboxPool, counts: PoolCounts, *, now: float) -> float | None:
        """Returns at once: when to ask again at the latest, if the rest has to wait."""
        name = pool.metadata.name
        self._shown.add(name)
        for state in _STATES:
            self._metrics.pool.labels(name, state).set(getattr(counts, state))
        self._metrics.pool_failures.labels(name).set(counts.failures)
        patch = status.pool(pool, counts, now=self._api.client.now())
        if patch is None:
            self._differs_since.pop(name, None)  # a claim and its replacement: nothing to tell
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
        """Each claim and each end changes how many are claimed: told as soon, every sandbox would cost two writes."""
        return self._interval * (_CLAIMED if patch["status"].keys() == {"claimed"} else 1)

    def keep(self, pools: Set[str]) -> None:
        """Others are not there any more."""
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
