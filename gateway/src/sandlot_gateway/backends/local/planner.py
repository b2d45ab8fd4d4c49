"""Decides when pools start, keep or release instances: a state machine without clock, tasks or processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sandlot_contract.ids import InstanceId

from ...core.instances import PoolSpec, PoolStatus


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """Times in seconds."""

    max_starting: int = 2  # starts in flight, including those for callers
    beat: float = 0.02  # refill delay after a claim or a caller's start
    patience: float = 0.25  # maximum refill delay during a series of claims
    backoff: float = 0.5  # after the first failed start, doubled by each further failure
    max_backoff: float = 30.0
    quiet: float = 10.0  # how long after the last claim recycled instances above the pool's size stay
    reserve: int = 2  # times the size: the most warm instances while claims come


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, and when to plan again at the latest (None: only after a change)."""

    starts: list[str] = field(default_factory=list)  # pool names, one entry a start
    surplus: dict[str, int] = field(default_factory=dict)  # pool name → instances to release
    again_at: float | None = None


@dataclass(slots=True)
class _Pool:
    spec: PoolSpec
    starting: set[InstanceId] = field(default_factory=set)  # or being reset
    resetting: dict[InstanceId, str] = field(default_factory=dict)  # those of them being reset, by tenant
    failures: int = 0
    message: str | None = None  # why the last start has not succeeded
    retry_at: float = 0.0
    claimed_at: float | None = None


class Planner:
    """The pools' state. Every `now` is on the same monotonic clock."""

    def __init__(self, settings: PlanSettings | None = None) -> None:
        self.settings = settings or PlanSettings()
        self._pools: dict[str, _Pool] = {}
        self._pool_of: dict[InstanceId, str] = {}  # instance in `starting` → its pool
        self._callers: set[InstanceId] = set()  # starts that a caller waits for
        self._busy_since: float | None = None
        self._busy_until = 0.0

    def set(self, spec: PoolSpec) -> None:
        """Add or change a pool. After a changed template the caller removes the old instances."""
        pool = self._pools.get(spec.name)
        if pool is None:
            self._pools[spec.name] = _Pool(spec)
        else:
            pool.spec = spec
            pool.failures, pool.message, pool.retry_at = 0, None, 0.0

    def remove(self, name: str) -> bool:
        pool = self._pools.pop(name, None)
        if pool is None:
            return False
        for instance_id in pool.starting:
            del self._pool_of[instance_id]
        return True

    def spec(self, name: str) -> PoolSpec | None:
        pool = self._pools.get(name)
        return pool.spec if pool else None

    def specs(self) -> list[PoolSpec]:
        return [pool.spec for pool in self._pools.values()]

    def statuses(self) -> list[PoolStatus]:
        return [
            PoolStatus(
                pool.spec,
                starting=len(pool.starting) - len(pool.resetting),
                failures=pool.failures,
                message=pool.message,
                resetting=Counter(pool.resetting.values()),
            )
            for pool in self._pools.values()
        ]

    def starting(self, name: str) -> list[InstanceId]:
        pool = self._pools.get(name)
        return sorted(pool.starting) if pool else []

    def is_pending(self, instance_id: InstanceId) -> bool:
        """Return whether this instance is starting for a pool."""
        return instance_id in self._pool_of

    def claimed(self, name: str, *, now: float) -> None:
        """Note that a warm instance of the pool was claimed."""
        if (pool := self._pools.get(name)) is not None:
            pool.claimed_at = now
        self._busy(now)

    def caller_began(self, instance_id: InstanceId, *, now: float) -> None:
        self._callers.add(instance_id)
        self._busy(now)

    def began(self, name: str, instance_id: InstanceId) -> None:
        """Note a start in progress for the pool."""
        if (pool := self._pools.get(name)) is not None:
            pool.starting.add(instance_id)
            self._pool_of[instance_id] = name

    def reset_began(self, name: str, instance_id: InstanceId, tenant: str) -> None:
        """Note a reset in progress after which the pool has the instance for this tenant."""
        self.began(name, instance_id)
        if (pool := self._pools.get(name)) is not None:
            pool.resetting[instance_id] = tenant

    def ready(self, instance_id: InstanceId) -> None:
        """Note that the start succeeded; the instance counts as warm."""
        pool = self._forget(instance_id)
        if pool is not None:
            pool.failures, pool.message, pool.retry_at = 0, None, 0.0

    def gone(self, instance_id: InstanceId) -> None:
        """Note that the start ended for a reason that says nothing about the next one."""
        self._forget(instance_id)

    def failed(self, name: str, instance_id: InstanceId | None, *, now: float, message: str) -> None:
        if instance_id is not None:
            self._forget(instance_id)
        if (pool := self._pools.get(name)) is not None:
            pool.failures += 1
            pool.message = message
            # Without the minimum a long outage overflows the float.
            wait = self.settings.backoff * 2 ** min(pool.failures - 1, 63)
            pool.retry_at = now + min(wait, self.settings.max_backoff)

    def refused(
        self, name: str, instance_id: InstanceId, *, now: float, message: str, retry_after: float
    ) -> None:
        """Note that the start lacked what other instances use now, which is no failure of the pool's."""
        self._forget(instance_id)
        if (pool := self._pools.get(name)) is not None:
            pool.message = message
            pool.retry_at = now + retry_after

    def plan(self, *, now: float, warm: Mapping[str, int]) -> Plan:
        """Return the plan. `warm`: ready, unclaimed instances by pool. Call `began` for each start in it."""
        plan_again: list[float] = []
        starts: list[str] = []
        missing = self._missing(now=now, warm=warm, again=plan_again)
        held_until = self._held_until(now)
        if missing and held_until is not None:
            plan_again.append(held_until)
        elif missing:
            free = self.settings.max_starting - len(self._pool_of) - len(self._callers)
            for _ in range(free):
                if not missing:
                    break
                # The emptiest pool first, so that a big pool does not starve small ones.
                name = max(missing, key=lambda key: (missing[key] / self._pools[key].spec.size, key))
                starts.append(name)
                missing[name] -= 1
                if not missing[name]:
                    del missing[name]
        surplus = self._surplus(now=now, warm=warm, again=plan_again)
        return Plan(starts, surplus, min(plan_again, default=None))

    def wants(self, names: Collection[str], *, now: float, warm: Mapping[str, int]) -> str | None:
        """Return which of these pools needs a used instance most, if any does."""
        best: tuple[float, str] | None = None
        for name in names:
            pool = self._pools.get(name)
            if pool is None or pool.spec.size == 0:
                continue
            bound = pool.spec.size * (self.settings.reserve if self._in_demand(pool, now) else 1)
            present = warm.get(name, 0) + len(pool.starting)
            if present < bound:
                best = min(best or (1.0, name), (present / bound, name))
        return best[1] if best else None

    def _missing(self, *, now: float, warm: Mapping[str, int], again: list[float]) -> dict[str, int]:
        missing: dict[str, int] = {}
        for name, pool in self._pools.items():
            count = pool.spec.size - warm.get(name, 0) - len(pool.starting)
            if count <= 0:
                continue
            if now < pool.retry_at:
                again.append(pool.retry_at)
            else:
                # After a failure or refusal start one at a time, to see whether its cause is gone.
                missing[name] = min(count, max(0, 1 - len(pool.starting))) if pool.message else count
        return {name: count for name, count in missing.items() if count}

    def _surplus(self, *, now: float, warm: Mapping[str, int], again: list[float]) -> dict[str, int]:
        surplus: dict[str, int] = {}
        for name, pool in self._pools.items():
            keep = pool.spec.size
            if self._in_demand(pool, now) and pool.claimed_at is not None:
                keep *= self.settings.reserve
                if warm.get(name, 0) > pool.spec.size:
                    again.append(pool.claimed_at + self.settings.quiet)
            if warm.get(name, 0) > keep:
                surplus[name] = warm.get(name, 0) - keep
        return surplus

    def _in_demand(self, pool: _Pool, now: float) -> bool:
        return pool.claimed_at is not None and now < pool.claimed_at + self.settings.quiet

    def _busy(self, now: float) -> None:
        if now >= self._busy_until:
            self._busy_since = now
        self._busy_until = now + self.settings.beat

    def _held_until(self, now: float) -> float | None:
        """Return until when refill yields to callers' starts, or None."""
        if self._busy_since is None or now >= self._busy_until:
            return None
        until = min(self._busy_until, self._busy_since + self.settings.patience)
        return until if until > now else None

    def _forget(self, instance_id: InstanceId) -> _Pool | None:
        self._callers.discard(instance_id)
        pool = self._pools.get(self._pool_of.pop(instance_id, ""))
        if pool is not None:
            pool.starting.discard(instance_id)
            pool.resetting.pop(instance_id, None)
        return pool
