"""Runs that share slots under overload, simulated with the real queue: what each gets, and how good its estimates are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from sandlot_contract.ids import InstanceId
from sandlot_contract.template import Template
from sandlot_gateway.core.instances import Instance, by_size
from sandlot_gateway.core.ready import first_come
from sandlot_gateway.core.slots import Slots
from sandlot_gateway.core.supply import SupplyCore
from sandlot_gateway.core.supply_events import Asked, AskId, Offered
from sandlot_gateway.core.supply_settings import SupplySettings

from tests.gateway.trainers import LONGEST, POOL, SLOTS, OnePool, Trainers, close


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
    assert close(world.served, "heavy") > 0.9
    assert close(world.served, "light") > 0.9


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
    world = Trainers(seed=2)
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
