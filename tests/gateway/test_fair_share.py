"""Runs that share slots under overload, simulated with the real queue: what each gets, and how good its estimates are."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count

import pytest
from sandlot_contract.ids import InstanceId
from sandlot_contract.template import Template
from sandlot_gateway.core.instances import Instance, PoolSpec, PoolStatus, by_size
from sandlot_gateway.core.ready import first_come
from sandlot_gateway.core.slots import Slots
from sandlot_gateway.core.supply import SupplyCore
from sandlot_gateway.core.supply_events import Asked, AskId, Effect, Grant, Offered
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

    def __init__(self, weights: Mapping[str, int], *, seed: int) -> None:
        self.core = SupplyCore(
            settings=SupplySettings(max_waiting=10_000),
            slots=Slots(rank=first_come(), kind=by_size),
            seen=OnePool(),
            weigh=lambda path: weights.get(path[1], 1) if len(path) == 2 else 1,
        )
        self.now = 0.0
        self.served: list[Served] = []
        self.holding: Counter[str] = Counter()
        self._chance = random.Random(seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count(1)
        self._asked: dict[AskId, tuple[str, float, float | None]] = {}
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
        self._asked[ask] = run, self.now, None
        effects = self.core.step(Asked(ask, Template("image", cpu=1.0), "t", run=run), self.now)
        if not self._granted(effects):
            self._asked[ask] = run, self.now, self.core.estimated_wait(ask, self.now)

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
            run, asked_at, told = self._asked.pop(grant.ask)
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


def alike(world: Trainers) -> None:
    world.keep("heavy", 100)
    world.keep("light", 100)


def more_of_the_light_one(world: Trainers) -> None:
    world.keep("heavy", 60)
    world.keep("light", 140)


def at_random(world: Trainers) -> None:
    world.arrive("heavy", every=1.6)
    world.arrive("light", every=4.0)


@pytest.mark.parametrize("load", [alike, more_of_the_light_one, at_random])
def test_runs_of_weights_three_and_one_get_that_and_know_their_wait(load: Callable[[Trainers], None]) -> None:
    world = Trainers({"heavy": 3}, seed=1)
    load(world)
    world.run(1200.0)
    turns = Counter(one.run for one in world.since(300.0))
    assert turns["heavy"] / turns["light"] == pytest.approx(3.0, rel=0.05)
    assert close(world.served, "heavy") >= 0.8
    assert close(world.served, "light") >= 0.8


def test_a_burst_beside_one_of_more_weight_knows_its_wait() -> None:
    """What it had alone says too little then, and what it would have beside one that never ends too much."""
    world = Trainers({"heavy": 3}, seed=1)
    world.keep("light", 50)
    world.run(300.0)
    world.stop("light")
    before = len(world.served)
    for run, creates in {"heavy": 60, "light": 150}.items():
        for _ in range(creates):
            world.ask(run)
    world.run(3000.0)
    assert close(world.served[before:], "heavy") >= 0.8
    assert close(world.served[before:], "light") >= 0.8


def test_a_run_uses_what_is_idle_and_gives_it_back_without_losing_a_sandbox() -> None:
    world = Trainers({}, seed=2)
    world.keep("big", 100)
    world.run(200.0)
    assert world.holding == {"big": SLOTS}, "alone it has all"
    began = world.now
    world.keep("small", 100)
    assert world.holding["big"] == SLOTS, "who comes ends nothing of it"
    world.run(began + LONGEST)
    since = world.since(began)
    assert len(since) >= SLOTS, "all that ran then has ended by itself"
    order = "".join(one.run[0] for one in since)
    assert all(abs(order[:n].count("b") - order[:n].count("s")) <= 2 for n in range(len(order)))
    assert world.holding["small"] >= SLOTS / 4


def test_a_wait_is_unknown_until_some_were_served_and_grows_while_none_is() -> None:
    core = SupplyCore(settings=SupplySettings(), slots=Slots(rank=first_come(), kind=by_size), seen=OnePool())
    template = Template("image", cpu=1.0)
    for number in range(20):
        core.step(Asked(AskId(number), template, "t"), 0.0)
    last = AskId(19)
    for served in range(1, 6):
        assert core.estimated_wait(last, served - 0.5) is None
        slot = Instance(InstanceId(f"slot-{served}"), POOL.template, "unix:/none", "token", POOL.name)
        core.slots.report_warm(slot, 1)
        core.step(Offered(slot), float(served))
    assert core.estimated_wait(last, 5.0) == pytest.approx(15.0)
    assert core.estimated_wait(AskId(5), 5.0) == pytest.approx(1.0)
    assert core.estimated_wait(last, 10.0) == pytest.approx(30.0), "none was served for five seconds"
    assert core.estimated_wait(AskId(0), 10.0) is None, "it does not wait"
