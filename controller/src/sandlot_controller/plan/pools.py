"""Plans which pods each pool creates and retires: a state machine without clock, tasks or API server."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sandlot_contract.verdicts import SandboxVerdict
from sandlot_kube.verdicts import Verdict

from .placement.ledger import Ledger, NoNode
from .placement.needs import Needs
from .pool_pods import PodView, PoolPods
from .retirements import Attempt, Retirements

# Failures that the template may cause; a lost node or an eviction says nothing about the next start.
_FAILURES = {
    SandboxVerdict.IMAGE_PULL,
    SandboxVerdict.START_FAILED,
    SandboxVerdict.SANDBOX_LOST,
    SandboxVerdict.SIDECAR_LOST,
    SandboxVerdict.OOM,
}


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """Settings of the planner; times are in seconds."""

    starts_per_node: int = 4
    most_expected: int = 64  # pods; more requests at once would only queue at the API server
    backoff: float = 1.0
    max_backoff: float = 60.0
    expectation: float = 30.0  # a created pod must appear in the watch within this time
    settle: float = 3.0  # a pod that ran this long proves that starts work again
    # Starts compete for CPU with the first commands of new owners, so they are delayed: this long after the last claim,
    # at most `longest_yield` after the first claim that left the pool short. That holds for an empty pool, too: after a
    # burst that takes the whole pool, its first commands are still to come.
    yields: float = 0.5
    longest_yield: float = 2.0


@dataclass(frozen=True, slots=True)
class PoolView:
    name: str
    build: str
    size: int
    pods: PoolPods
    needs: Needs
    # Whether the needs are what the API server's admission makes of such a pod; until then one is tried.
    admitted: bool = True
    quiet: float = 0.0  # seconds that a surplus is kept, because its pods came back from their owners


@dataclass(frozen=True, slots=True)
class Start:
    """A pod to create. `node`: where it must run; None: nowhere is room, so that an autoscaler sees it wait."""

    pool: str
    node: str | None


@dataclass(frozen=True, slots=True)
class Plan:
    """The actions for now, and when to plan again at the latest (None: only after a change)."""

    creates: list[Start] = field(default_factory=list)
    retire: list[tuple[str, PodView]] = field(default_factory=list)  # pool name and pod
    again_at: float | None = None


@dataclass(slots=True)
class _Pool:
    build: str
    failures: int = 0
    message: str | None = None
    failed_at: float = 0.0
    retry_at: float = 0.0
    claimed_at: float = -math.inf
    short_since: float | None = None
    surplus_since: float | None = None
    # pods not seen yet -> until when they are expected
    expected: dict[str, float] = field(default_factory=dict)
    retiring: str | None = None
    retirements: Retirements = field(default_factory=Retirements)


class Planner:
    """Plans all pools. All `now` are from one monotonic clock."""

    def __init__(self, settings: PlanSettings | None = None) -> None:
        self.settings = settings or PlanSettings()
        self._pools: dict[str, _Pool] = {}

    # Events.

    def expect(self, pool: str, name: str, *, now: float) -> bool:
        """Expect a pod; return False if its pool is gone. Call this before the request, whose response may be lost."""
        if (state := self._pools.get(pool)) is None:
            return False
        state.expected[name] = now + self.settings.expectation
        return True

    def seen(self, pool: str, name: str) -> None:
        """Stop expecting a pod: the watch has shown it or its end, or it was certainly not created."""
        if (state := self._pools.get(pool)) is not None:
            state.expected.pop(name, None)

    def died(self, pool: str, verdict: Verdict, *, now: float) -> bool:
        """Record the death of an unclaimed pod; return whether it counts as a failed start."""
        if not verdict.certain or verdict.verdict not in _FAILURES:
            return False
        self.failed(pool, now=now, message=f"{verdict.verdict}: {verdict.message}")
        return True

    def claimed(self, pool: str, *, now: float) -> None:
        """Record that one of its pods was claimed."""
        if (state := self._pools.get(pool)) is not None:
            state.claimed_at = now

    def failed(self, pool: str, *, now: float, message: str) -> None:
        """Record a failed start."""
        if (state := self._pools.get(pool)) is None:
            return
        state.failures += 1
        state.message = message
        state.failed_at = now
        wait = self.settings.backoff * 2 ** min(state.failures - 1, 63)  # more would overflow the float
        state.retry_at = now + min(wait, self.settings.max_backoff)

    def retiring(self, pool: str, name: str) -> None:
        self._pools[pool].retiring = name

    def retired(self, pool: str, name: str, attempt: Attempt, *, now: float) -> None:
        """Record the end of an attempt to retire a pod."""
        if (state := self._pools.get(pool)) is None:
            return
        if state.retiring == name:
            state.retiring = None
        state.retirements.ended(name, attempt, now=now)

    def trouble(self, pool: str) -> tuple[int, str | None]:
        """Return the number of failed starts since the last success, and the last reason."""
        state = self._pools.get(pool)
        return (state.failures, state.message) if state else (0, None)

    # Planning.

    def plan(
        self, pools: Sequence[PoolView], *, ledger: Ledger, now: float, shown_since: float = -math.inf
    ) -> Plan:
        """Return what to do. `ledger`: all nodes and all our pods, also expected ones; `shown_since`: since when a watch shows pods."""
        again: list[float] = []
        for view in pools:
            self._refresh(view, now=now, shown_since=shown_since, again=again)
        for gone in self._pools.keys() - {view.name for view in pools}:
            del self._pools[gone]
        retire = [
            (view.name, pod)
            for view in pools
            if (pod := self._retire(view, ledger=ledger, now=now, again=again))
        ]
        missing = self._missing(pools, now=now, again=again)
        settled = missing and not ledger.is_scheduler_next()
        creates = self._share(pools, missing, ledger=ledger) if settled else []
        return Plan(creates, retire, min(again, default=None))

    def _refresh(self, view: PoolView, *, now: float, shown_since: float, again: list[float]) -> None:
        state = self._pools.setdefault(view.name, _Pool(view.build))
        if state.build != view.build:
            state.build = view.build
            state.failures, state.message, state.retry_at = 0, None, 0.0
        least = shown_since + self.settings.expectation
        expected = {name: max(until, least) for name, until in state.expected.items()}
        state.expected = {n: until for n, until in expected.items() if until > now and n not in view.pods}
        again += state.expected.values()
        state.retirements.keep(view.pods)
        if not state.failures:
            return
        for pod in view.pods:
            if pod.build == view.build and (pod.ready_since or 0.0) > state.failed_at:
                assert pod.ready_since is not None
                if now >= pod.ready_since + self.settings.settle:
                    state.failures, state.message, state.retry_at = 0, None, 0.0
                    return
                again.append(pod.ready_since + self.settings.settle)

    def _missing(self, pools: Sequence[PoolView], *, now: float, again: list[float]) -> dict[str, int]:
        """Return the number of pods that each pool may start now."""
        missing: dict[str, int] = {}
        for view in pools:
            state = self._pools[view.name]
            ready = view.pods.count(view.build, ready=True)
            starting = view.pods.count(view.build, ready=False)
            count = view.size - ready - starting - len(state.expected)
            if count <= 0:
                state.short_since = None
                continue
            if (until := self._yield_until(state, now=now)) > now:
                again.append(until)
                continue
            if now < state.retry_at:
                again.append(state.retry_at)
                continue
            if state.failures or not view.admitted:
                # one start at a time tests whether the reason is gone, or what such a pod needs
                count = min(count, max(0, 1 - len(state.expected) - starting))
            if count > 0:
                missing[view.name] = count
        return missing

    def _share(self, pools: Sequence[PoolView], missing: dict[str, int], *, ledger: Ledger) -> list[Start]:
        views = {view.name: view for view in pools}
        cap = self.settings.starts_per_node
        room = self.settings.most_expected - sum(len(state.expected) for state in self._pools.values())
        creates: list[Start] = []
        with ledger.trial() as place:
            while missing and len(creates) < room:
                # The emptiest first, so that a big pool does not starve small ones.
                name = max(missing, key=lambda each: (missing[each] / views[each].size, each))
                node = place(views[name].needs, cap, missing[name])
                if isinstance(node, NoNode) and node is not NoNode.FULL:
                    del missing[name]
                    continue
                creates.append(Start(name, None if node is NoNode.FULL else node))
                missing[name] -= 1
                if not missing[name]:
                    del missing[name]
        return creates

    def _yield_until(self, state: _Pool, *, now: float) -> float:
        if state.short_since is None:
            state.short_since = now
        return min(state.claimed_at + self.settings.yields, state.short_since + self.settings.longest_yield)

    def _retire(self, view: PoolView, *, ledger: Ledger, now: float, again: list[float]) -> PodView | None:
        state = self._pools[view.name]
        if state.retiring is not None:
            if state.retiring in view.pods:
                return None
            state.retiring = None
        candidates = list(
            self._candidates(view, ledger=ledger, surplus=self._surplus(view, now=now, again=again))
        )
        for pod in candidates:
            if (due := state.retirements.due(pod.name)) <= now:
                return pod
            again.append(due)
        return None

    def _surplus(self, view: PoolView, *, now: float, again: list[float]) -> bool:
        """Return whether the pool has had too many pods for long enough."""
        state, pods = self._pools[view.name], view.pods
        if pods.count(view.build, ready=True) + pods.count(view.build, ready=False) <= view.size:
            state.surplus_since = None
            return False
        if state.surplus_since is None:
            state.surplus_since = now
        due = state.surplus_since + view.quiet
        if now < due:
            again.append(due)
        return now >= due

    def _candidates(self, view: PoolView, *, ledger: Ledger, surplus: bool) -> Iterable[PodView]:
        """Yield the pods that should go, best first. A pod on a node without an address cannot be asked yet."""
        pods = view.pods
        outdated = [pod for pod in pods.outdated(view.build) if _can_go(pod)]
        stuck = [pod for pod in _stuck(view) if _can_go(pod)]
        if surplus:
            current = (pod for pod in pods.unclaimed() if pod.build == view.build and _can_go(pod))
            # On the emptiest node first, so that an autoscaler can take it away.
            yield from sorted(
                current,
                key=lambda pod: (
                    pod.node is not None,
                    pod.ready_since is not None,
                    ledger.fullness(pod.node or ""),
                    -pod.since,
                ),
            )
        yield from (pod for pod in outdated if pod.ready_since is None)
        # An outdated pod goes once the pool is full without it, or when it takes the room that a new one needs.
        if len(pods.ready) > view.size or stuck or view.size == 0:
            yield from sorted(
                (pod for pod in outdated if pod.ready_since is not None), key=lambda pod: pod.since
            )


def _can_go(pod: PodView) -> bool:
    return pod.node is None or pod.askable


def _stuck(view: PoolView) -> Iterable[PodView]:
    """Return the pods of the pool's build that the scheduler has no node for."""
    return (pod for pod in view.pods.starting.values() if pod.unschedulable and pod.build == view.build)
