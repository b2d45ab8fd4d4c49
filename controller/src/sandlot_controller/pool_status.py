"""Tells what a pool has, in its status and its metrics: what is new at once, counts only when they have lasted a while."""

from __future__ import annotations

from collections.abc import Callable, Set

from sandlot_kube.objects import SandboxPool

from sandlot_controller import status
from sandlot_controller.api import Api
from sandlot_controller.metrics import Metrics
from sandlot_controller.retry import until_done
from sandlot_controller.status import PoolCounts
from sandlot_controller.tasks import Tasks

_STATES = ("ready", "starting", "claimed", "size")
_CLAIMED = 12.0  # intervals for a difference in the number of the claimed alone
_SHOWN = 5.0  # seconds in which the watch shows a write, or the write is done again


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
        """`look`: a write is over, and what changed meanwhile found its place taken."""
        self._api = api
        self._interval = interval
        self._metrics = metrics
        self._clock = clock
        self._look = look
        self._tasks = Tasks()
        self._shown: set[str] = set()
        self._told_at: dict[str, float] = {}
        self._differs_since: dict[str, float] = {}
        self._written: dict[str, tuple[str, float]] = {}  # over which resource version, and when

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
        version, at = self._written.get(name, ("", 0.0))
        if version == pool.metadata.resource_version and now < at + _SHOWN:
            return at + _SHOWN
        if not status.urgent(pool, patch):
            since = self._differs_since.setdefault(name, now)
            due = max(since, self._told_at.get(name, since)) + self._patience(patch)
            if now < due:
                return due
        if self._tasks.spawn(f"status {name}", self._patch(pool, patch), then=self._look):
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
            for kept in (self._told_at, self._differs_since, self._written):
                kept.pop(name, None)

    async def close(self) -> None:
        await self._tasks.close()

    async def _patch(self, pool: SandboxPool, patch: status.Patch) -> None:
        await until_done(lambda: self._api.patch_pool_status(pool, patch))
        self._written[pool.metadata.name] = (pool.metadata.resource_version, self._clock())
