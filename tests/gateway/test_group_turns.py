"""Groups at one or two gateways that share slots, in every order of events: none holds a part for ever."""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pytest
from sandlot_gateway.core.group_turns import Collect, GiveBack, GroupId, GroupTurns, Turn, full

LOSSES = ("lost", "died")


@dataclass
class Asked:
    """A group of the model: what it holds is known to its gateway alone, what it has claimed to all."""

    need: int
    gateway: int
    held: set[int] = field(default_factory=set)
    dead: int = 0  # of what it got while it collects: it finds that when the next one comes
    claimed: set[int] = field(default_factory=set)
    claims: bool = False  # it had all, and asks the sidecars
    handed_out: bool = False
    over: bool = False


class World:
    """Gateways with the real `GroupTurns`, and slots that any of them may hold, and one claim.

    `losses`: slots may be lost, and then start again. `gives_up`: a group that lost some and gets no others fails.
    """

    def __init__(
        self,
        groups: dict[str, Asked],
        *,
        slots: int,
        gateways: int,
        patience: float,
        losses: bool = False,
        gives_up: bool = True,
    ) -> None:
        self.slots, self.losses, self.gives_up = range(slots), losses, gives_up
        self.groups = {GroupId(name): group for name, group in groups.items()}
        self.now = [0.0] * gateways
        self.turns = [
            GroupTurns(alone=gateways == 1, chance=lambda: 0.5, patience=patience) for _ in range(gateways)
        ]
        for name in self.groups:
            self.join(name)

    def join(self, name: GroupId) -> None:
        at = self.groups[name].gateway
        self.act(self.turns[at].join(name, tenant="t", run=name, now=self.now[at]))

    def act(self, turns: Iterable[Turn]) -> None:
        for turn in turns:
            match turn:
                case GiveBack(name):
                    self.groups[name].held.clear()
                    self.groups[name].dead = 0
                case Collect(name):
                    assert not self.groups[name].held, "a group begins with nothing"

    # Events: each has a name and changes a copy.

    def events(self) -> Iterator[tuple[str, GroupId | int, int]]:
        claimed = set().union(*(group.claimed for group in self.groups.values()))
        for at, turns in enumerate(self.turns):
            due = turns.next_due()
            if due is not None and not math.isinf(due) and due > self.now[at]:
                yield "time", at, 0
        for name, group in self.groups.items():
            here = set().union(*(one.held for one in self.groups.values() if one.gateway == group.gateway))
            if self.turns[group.gateway].collecting == name:
                yield from (("grant", name, slot) for slot in self.slots if slot not in claimed | here)
            if group.claims:
                yield from (("claim", name, slot) for slot in group.held)
                if not group.held:  # lost to another gateway's claims
                    yield from (("again", name, slot) for slot in self.slots if slot not in claimed | here)
                    if self.gives_up:
                        yield "stuck", name, 0
            if self.losses:
                yield from (("lost", name, slot) for slot in group.held)
                if group.claimed and not group.handed_out:
                    yield "died", name, 0
            if group.handed_out and not group.over:
                yield "end", name, 0

    def happen(self, event: str, name: GroupId | int, slot: int) -> None:
        if event == "time":
            at = int(name)
            self.now[at] = self.turns[at].next_due() or 0.0
            self.act(self.turns[at].step(self.now[at]))
            return
        group = self.groups[GroupId(str(name))]
        turns, now = self.turns[group.gateway], self.now[group.gateway]
        match event:
            case "grant":
                group.held.add(slot)
                group.dead = 0
                turns.got(GroupId(str(name)), now=now)
                if len(group.held) == group.need:
                    group.claims = True
                    self.act(turns.leave(GroupId(str(name)), now=now))
            case "claim":
                group.held.discard(slot)
                if not any(slot in other.claimed for other in self.groups.values()):
                    group.claimed.add(slot)
            case "again":
                group.held.add(slot)
            case "lost":  # a start or a warm slot, which no sidecar was asked for yet
                group.held.discard(slot)
                group.dead += turns.collecting == name
            case "stuck" | "died":  # it fails as a whole, and its caller asks again
                group.held.clear()
                group.claimed.clear()
                group.claims = False
                self.join(GroupId(str(name)))
            case "end":
                group.claimed.clear()
                group.over = True
        if group.claims and len(group.claimed) == group.need:
            group.claims, group.handed_out = False, True

    def check(self) -> None:
        claimed = [slot for group in self.groups.values() for slot in group.claimed]
        assert len(claimed) == len(set(claimed)), "a slot has one owner"
        for name, group in self.groups.items():
            collects = self.turns[group.gateway].collecting == name
            assert collects or group.claims or not group.held, (
                "only a group that collects or claims holds any"
            )
            assert len(group.held) + group.dead < group.need or not collects, (
                "one that collects asks for some"
            )
            assert not group.handed_out or group.over or len(group.claimed) == group.need, "never a part"

    def key(self) -> object:
        """Return what tells states apart: not the time, of which each gateway has its own."""
        return (
            tuple(
                (turns.collecting, tuple(turns.position(name) for name in self.groups))
                for turns in self.turns
            ),
            tuple(
                (frozenset(one.held), one.dead, frozenset(one.claimed), one.claims, one.handed_out, one.over)
                for one in self.groups.values()
            ),
            tuple(
                turns.next_due() is not None and (turns.next_due() or 0.0) > now
                for turns, now in zip(self.turns, self.now, strict=True)
            ),
        )

    @property
    def done(self) -> bool:
        return all(group.over for group in self.groups.values())


def stuck_states(world: World) -> tuple[int, int]:
    """Return how many states there are, and from how many of them the groups cannot all come to their end.

    Without further losses: one of another group's slots must not be what helps.
    """
    before: dict[object, set[object]] = {world.key(): set()}
    done: set[object] = set()
    todo = deque([world])
    while todo:
        now = todo.popleft()
        now.check()
        if now.done:
            done.add(now.key())
        for event in now.events():
            after = copy.deepcopy(now)
            after.happen(*event)
            if after.key() not in before:
                before[after.key()] = set()
                todo.append(after)
            if event[0] not in LOSSES:
                before[after.key()].add(now.key())
    reached, ahead = set(done), list(done)
    while ahead:
        for key in before[ahead.pop()] - reached:
            reached.add(key)
            ahead.append(key)
    return len(before), len(before) - len(reached)


@pytest.mark.parametrize("patience", [30.0, math.inf])
def test_groups_of_one_gateway_come_one_after_the_other_also_without_time(patience: float) -> None:
    groups = {"a": Asked(2, 0), "b": Asked(2, 0), "c": Asked(3, 0)}
    world = World(groups, slots=3, gateways=1, patience=patience, gives_up=False)
    states, stuck = stuck_states(world)
    assert states > 20
    assert stuck == 0


def test_groups_of_two_gateways_give_back_what_the_other_needs() -> None:
    groups = {"a": Asked(2, 0), "b": Asked(2, 1)}
    states, stuck = stuck_states(World(groups, slots=2, gateways=2, patience=30.0))
    assert states > 100
    assert stuck == 0


def test_without_giving_back_the_model_finds_the_deadlock() -> None:
    groups = {"a": Asked(2, 0), "b": Asked(2, 1)}
    _, stuck = stuck_states(World(groups, slots=2, gateways=2, patience=math.inf, gives_up=False))
    assert stuck > 0


@pytest.mark.parametrize("gateways", [1, 2])
def test_groups_that_lose_slots_come_to_their_end(gateways: int) -> None:
    groups = {"a": Asked(2, 0), "b": Asked(2, gateways - 1)}
    world = World(groups, slots=2, gateways=gateways, patience=30.0, losses=True)
    states, stuck = stuck_states(world)
    assert states > 20
    assert stuck == 0


def test_without_giving_up_what_was_lost_blocks_the_group_that_collects() -> None:
    """Also at one gateway: it has no other group for which the collecting one would give back."""
    groups = {"a": Asked(2, 0), "b": Asked(3, 0)}
    for gives_up in (False, True):
        world = World(groups, slots=3, gateways=1, patience=30.0, losses=True, gives_up=gives_up)
        assert (stuck_states(world)[1] > 0) is not gives_up


def test_a_group_waits_less_long_for_others_than_they_for_it() -> None:
    """A tenant with many groups delays another's first one by one turn."""
    turns = GroupTurns(alone=True, chance=lambda: 0.5, patience=30.0)
    for number in range(10):
        turns.join(GroupId(f"a{number}"), tenant="a", run="", now=0.0)
    turns.join(GroupId("b"), tenant="b", run="", now=0.0)
    assert turns.collecting == "a0"
    assert turns.position(GroupId("b")) <= 3
    assert turns.step(29.0) == []
    gave, collects = turns.step(30.0)
    assert (gave, isinstance(collects, Collect)) == (GiveBack(GroupId("a0")), True)
    assert turns.position(GroupId("a0")) == 11


def test_a_tenant_may_have_a_tenth_of_a_full_queue_and_its_runs_share_it() -> None:
    many = [("a", "1")] * 20
    assert not full(many[1:], "a", "1", limit=20)
    assert full(many, "a", "1", limit=20)
    assert not full(many, "b", "1", limit=20)
    assert not full([*many, ("b", "1")], "b", "2", limit=20)
    assert full([*many, ("b", "1")], "b", "1", limit=10)
