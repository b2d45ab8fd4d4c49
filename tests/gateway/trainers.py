"""Runs that share slots under overload, simulated with the real queue."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count

from sandlot_contract.ids import InstanceId
from sandlot_contract.template import Template
from sandlot_gateway.core.fair_queue import Scheduling
from sandlot_gateway.core.instances import Instance, PoolSpec, PoolStatus, by_size
from sandlot_gateway.core.ready import first_come
from sandlot_gateway.core.slots import Slots
from sandlot_gateway.core.supply import SupplyCore
from sandlot_gateway.core.supply_events import Asked, AskId, Effect, Grant, Looked, Offered
from sandlot_gateway.core.supply_settings import SupplySettings

from tests.gateway.supply_world import World

SLOTS = 20
POOL = PoolSpec("pool", Template("", cpu=1.0), SLOTS)
LONGEST = 60.0  # seconds that a sandbox lives at most, 30 on the average


class OnePool(World):
    def pools(self) -> list[PoolStatus]:
        return [PoolStatus(POOL, starting=0)]

    def pool(self, name: str) -> PoolSpec | None:
        return POOL if name == POOL.name else None


@dataclass
class Served:
    """A create that got its slot: when, how long it waited, and what it was told when it joined."""

    run: str
    at: float
    waited: float
    told: float | None


class Trainers:
    """Runs of one tenant whose creates wait for slots; each sandbox lives for a random time and frees its slot."""

    def __init__(self, weights: Mapping[str, int] | None = None, *, seed: int) -> None:
        self.scheduling = {run: Scheduling(weight) for run, weight in (weights or {}).items()}
        self.core = SupplyCore(
            settings=SupplySettings(max_waiting=10_000),
            slots=Slots(rank=first_come(), kind=by_size),
            seen=OnePool(),
            schedule=lambda path: self.scheduling.get(path[-1], Scheduling()),
        )
        self.now = 0.0
        self.served: list[Served] = []
        self.holding: Counter[str] = Counter()
        self._chance = random.Random(seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count(1)
        self.asked: dict[AskId, tuple[str, float, float | None]] = {}
        self._then: dict[str, Callable[[], None]] = {}
        for _ in range(SLOTS):
            self._free()

    def at(self, when: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), do))

    def keep(self, run: str, outstanding: int) -> None:
        """Let a run create a sandbox for each that ends, so that as many wait or run."""
        self._then[run] = partial(self.ask, run)
        for _ in range(outstanding):
            self.ask(run)

    def stop(self, run: str) -> None:
        """Let a run create no more."""
        del self._then[run]

    def arrive(self, run: str, *, every: float) -> None:
        """Let a run create sandboxes at random times, one in so many seconds on the average."""
        self.ask(run)
        self.at(self.now + self._chance.expovariate(1 / every), partial(self.arrive, run, every=every))

    def ask(self, run: str) -> None:
        ask = AskId(next(self._numbers))
        self.asked[ask] = run, self.now, None
        effects = self.core.step(Asked(ask, Template("image", cpu=1.0), "t", run=run), self.now)
        if not self._granted(effects):
            self.asked[ask] = run, self.now, self.core.estimated_wait(ask, self.now)

    def set(self, run: str, scheduling: Scheduling) -> None:
        """Change a run's weight and priority while its creates wait."""
        self.scheduling[run] = scheduling
        self.now += 2.0
        self._granted(self.core.step(Looked(), self.now))

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, do = heapq.heappop(self._events)
            do()

    def since(self, when: float) -> list[Served]:
        return [one for one in self.served if one.at > when]

    def _free(self) -> None:
        """Offer a fresh slot, as if that of the sandbox before was reset."""
        slot = Instance(
            InstanceId(f"slot-{next(self._numbers)}"),
            POOL.template,
            "unix:/none",
            "token",
            POOL.name,
            node="n",
        )
        self.core.slots.report_warm(slot, 1)
        self._granted(self.core.step(Offered(slot), self.now))

    def _granted(self, effects: Iterable[Effect]) -> bool:
        grants = [effect for effect in effects if isinstance(effect, Grant)]
        for grant in grants:
            run, asked_at, told = self.asked.pop(grant.ask)
            self.holding[run] += 1
            self.served.append(Served(run, self.now, self.now - asked_at, told))
            self.at(self.now + self._chance.uniform(0.0, LONGEST), partial(self._end, run))
        return bool(grants)

    def _end(self, run: str) -> None:
        self.holding[run] -= 1
        self._free()
        if (then := self._then.get(run)) is not None:
            then()


def close(served: list[Served], run: str) -> float:
    """Return the part of a run's estimates that are within twice and half of the wait."""
    told = [one.waited / one.told for one in served if one.run == run and one.told]
    assert len(told) > 50
    return sum(0.5 <= ratio <= 2.0 for ratio in told) / len(told)
