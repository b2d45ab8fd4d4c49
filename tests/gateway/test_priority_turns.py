"""Priorities of runs where creates take turns otherwise: starts of several kinds, images that nodes have, and groups."""

from __future__ import annotations

from sandlot_contract.ids import InstanceId
from sandlot_contract.template import Template
from sandlot_gateway.core.fair_queue import Path, Scheduling
from sandlot_gateway.core.group_turns import Collect, GiveBack, GroupId, GroupTurns
from sandlot_gateway.core.instances import Instance, by_size
from sandlot_gateway.core.ready import first_come
from sandlot_gateway.core.slots import Slots
from sandlot_gateway.core.supply import SupplyCore
from sandlot_gateway.core.supply_events import Asked, AskId, Grant, Launch, Offered
from sandlot_gateway.core.supply_settings import SupplySettings

from tests.gateway.priority_line import HIGH, line_with
from tests.gateway.supply_world import World
from tests.gateway.test_wait_list import TEMPLATES, waiter
from tests.gateway.trainers import POOL, OnePool


def test_starts_of_several_kinds_begin_in_the_order_of_priorities() -> None:
    high = Scheduling(priority=1)
    core = SupplyCore(
        settings=SupplySettings(max_starts=3),
        slots=Slots(rank=first_come(), kind=lambda template: template.key),
        seen=World(),
        schedule=lambda path: high if path[-1] == "high" else Scheduling(),
    )
    for number in range(4):
        core.step(Asked(AskId(number), Template("low"), "t", run="low", at_once=False), 0.0)
    for number in range(4, 6):
        core.step(Asked(AskId(number), Template(f"high-{number}"), "t", run="high", at_once=False), 0.0)
    effects = core.step(Asked(AskId(6), Template("low"), "t", run="low"), 0.0)
    assert [effect.ask for effect in effects if isinstance(effect, Launch)] == [4, 5, 0]


def test_an_image_that_the_node_has_puts_no_lower_create_before_a_higher_one() -> None:
    class Prepared(OnePool):
        def nodes_with(self, image: str) -> set[str]:
            return {"n"} if image == "there" else set()

    core = SupplyCore(
        settings=SupplySettings(),
        slots=Slots(rank=first_come(), kind=by_size),
        seen=Prepared(),
        schedule=lambda path: HIGH if path[-1] == "high" else Scheduling(),
    )
    for ask, (tenant, run, image) in enumerate(
        [("t", "low", "there"), ("t", "high", "new"), ("u", "low", "there")]
    ):
        core.step(Asked(AskId(ask), Template(image, cpu=1.0), tenant, run=run), 0.0)
    granted: list[int] = []
    for number in range(3):
        slot = Instance(InstanceId(f"s{number}"), POOL.template, "unix:/none", "token", POOL.name, node="n")
        core.slots.report_warm(slot, 1)
        granted += [one.ask for one in core.step(Offered(slot), 1.0) if isinstance(one, Grant)]
    assert granted == [2, 1, 0], "another tenant's may go first, as without priorities"


def turns_with(*, alone: bool, outranked: bool = False) -> tuple[GroupTurns, list[bool]]:
    above = [outranked]

    def schedule(path: Path) -> Scheduling:
        return HIGH if path[-1] == "high" else Scheduling()

    turns = GroupTurns(
        alone=alone, chance=lambda: 0.5, schedule=schedule, outranked=lambda tenant, run, templates: above[0]
    )
    return turns, above


def test_groups_of_a_higher_priority_collect_first() -> None:
    turns, _ = turns_with(alone=True)
    for number, run in enumerate(["low", "low", "high", "low", "high"]):
        turns.join(GroupId(f"{run}{number}"), tenant="t", run=run, now=0.0)
    order: list[str] = []
    while (group := turns.collecting) is not None:
        order.append(group)
        turns.leave(group, now=0.0)
    assert order == ["low0", "high2", "high4", "low1", "low3"], "the first had begun before any other came"


def test_a_group_gives_back_what_single_creates_of_a_higher_priority_wait_for() -> None:
    turns, above = turns_with(alone=True)
    turns.join(GroupId("g"), tenant="t", run="", now=0.0)
    due = turns.next_due()
    assert due is not None
    assert turns.step(due) == [], "nobody else could use what it holds"
    later = turns.next_due()
    assert later is not None
    assert later > due
    above[0] = True
    assert turns.step(later) == [GiveBack(GroupId("g")), Collect(GroupId("g"))]


def test_a_group_keeps_what_no_waiting_create_of_a_higher_priority_can_use() -> None:
    line = line_with({("t", "high"): HIGH})
    turns = GroupTurns(
        alone=True,
        chance=lambda: 0.5,
        outranked=lambda tenant, run, templates: line.outranked(tenant, run, {one.key for one in templates}),
    )
    line.add(waiter("t", 1, TEMPLATES[0], run="high"))
    line.add(waiter("t", 2, TEMPLATES[2], run="low"))
    line.add(waiter("u", 3, TEMPLATES[2], run="high"))
    turns.join(GroupId("g"), tenant="t", run="low", now=0.0, templates=[TEMPLATES[2], TEMPLATES[1]])
    assert turns.step(100.0) == [], "that one waits for something else"
    line.add(waiter("t", 4, TEMPLATES[1], run="high"))
    assert turns.step(100.0) == [GiveBack(GroupId("g")), Collect(GroupId("g"))]
