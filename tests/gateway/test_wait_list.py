"""The line of waiting creates as plain data."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

from hypothesis import example, given, settings
from hypothesis import strategies as st
from sandlot_contract.template import Template
from sandlot_gateway.core.template_line import Waiter
from sandlot_gateway.core.waiting import WaitList

TEMPLATES = [Template(image="a"), Template(image="b"), Template(image="a", cpu=2.0)]
KEY = TEMPLATES[0].key

Asks = list[tuple[str, str, bool]]  # tenant, run; whether one is served first


def waiter(tenant: str, value: int, template: Template = TEMPLATES[0], *, run: str = "") -> Waiter[int]:
    return Waiter(template, template.key, tenant, value, run)


def served(line: WaitList[int], count: int, key: str = KEY) -> list[Waiter[int]]:
    return [one for _ in range(count) if (one := line.pop(key)) is not None]


def test_a_tenant_with_many_does_not_delay_another() -> None:
    line: WaitList[int] = WaitList()
    for number in range(100):
        line.add(waiter("greedy", number))
    line.add(waiter("modest", 1000))
    assert [one.tenant for one in served(line, 3)] == ["greedy", "modest", "greedy"]


def test_a_run_with_many_does_not_delay_another_of_its_tenant() -> None:
    line: WaitList[int] = WaitList()
    for number in range(100):
        line.add(waiter("a", number, run="greedy"))
    line.add(waiter("a", 1000, run="modest"))
    line.add(waiter("a", 1001))
    assert [one.run for one in served(line, 4)] == ["greedy", "modest", "", "greedy"]


def test_a_tenant_gets_no_more_turns_by_many_runs() -> None:
    line: WaitList[int] = WaitList()
    for number in range(100):
        line.add(waiter("many", number, run=f"run-{number}"))
    for number in range(3):
        line.add(waiter("one", number))
    assert [one.tenant for one in served(line, 6)] == ["many", "one"] * 3


def test_what_only_a_late_create_could_use_delays_no_newcomer() -> None:
    """An instance that fits the last of a thousand creates uses its tenant's next turn, not the thousandth."""
    line: WaitList[int] = WaitList()
    for number in range(1000):
        line.add(waiter("greedy", number))
    line.add(waiter("greedy", 1000, TEMPLATES[1]))
    assert [one.value for one in served(line, 1, TEMPLATES[1].key)] == [1000]
    line.add(waiter("modest", 2000))
    assert [one.tenant for one in served(line, 2)] == ["greedy", "modest"]


def test_a_create_that_waits_for_something_scarce_costs_no_other_tenant_its_turns() -> None:
    """While one of its tenant's creates could not be served, the others' turns moved away from those of newcomers."""
    line: WaitList[int] = WaitList()
    line.add(waiter("old", 0, TEMPLATES[1]))
    for number in range(1, 4):
        line.add(waiter("old", number))
    for number in range(1000):
        served(line, 1)
        line.add(waiter("old", number))
    for number in range(20):
        line.add(waiter("new", number))
        line.add(waiter("old", number))
    turns = Counter(one.tenant for one in served(line, 20))
    assert abs(turns["old"] - turns["new"]) <= 2


def test_creates_that_leave_in_vain_leave_their_tenant_its_turns() -> None:
    """They took their turns along, so that what joined later waited for all the turns of others before theirs."""
    line: WaitList[int] = WaitList()
    in_vain = [waiter("a", number, run="r") for number in range(1000)]
    for one in in_vain:
        line.add(one)
    for number in range(1000):
        line.add(waiter("b", number))
    for one in in_vain[:-1]:
        line.remove(one)
    line.add(waiter("a", 1000, run="s"))
    assert [one.tenant for one in served(line, 4)] == ["a", "b", "b", "a"]


def test_creates_that_leave_after_their_turn_was_due_save_it_for_no_later_one() -> None:
    line: WaitList[int] = WaitList()
    in_vain = [waiter("a", number, TEMPLATES[1]) for number in range(3)]
    for one in in_vain:
        line.add(one)
    for number in range(5):
        line.add(waiter("b", number))
    served(line, 3)
    line.add(waiter("a", 3))
    for one in in_vain:
        line.remove(one)
    assert [one.tenant for one in served(line, 2)] == ["b", "a"]


def test_front_is_served_next_and_positions_tell_the_order() -> None:
    line: WaitList[int] = WaitList()
    first, second, again = waiter("a", 1), waiter("a", 2), waiter("b", 3)
    line.add(first)
    line.add(second)
    line.add(again, front=True)
    assert [line.position(w) for w in (again, first, second)] == [1, 2, 3]
    assert line.pop(KEY) is again


def test_front_is_served_before_its_own_run_s_others() -> None:
    line: WaitList[int] = WaitList()
    for number in range(3):
        line.add(waiter("a", number, run="r"))
    line.add(again := waiter("a", 4, run="r"), front=True)
    assert line.position(again) == 1
    assert [one.value for one in served(line, 4)] == [4, 0, 1, 2]


PATHS = st.tuples(st.sampled_from("abc"), st.sampled_from(["", "r", "s"]))
GROUPS = [("a", "r"), ("a", "s"), ("b", "r")]
Action = tuple[Template, tuple[str, str], str]
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(TEMPLATES[1:]),
        st.sampled_from(GROUPS),
        st.sampled_from(["join", "join", "serve", "serve", "leave", "front"]),
    ),
    max_size=6,
)


@given(st.lists(st.tuples(PATHS, st.sampled_from(TEMPLATES), st.integers(0, 4)), max_size=60))
@settings(deadline=None)
def test_everybody_is_served_once_and_in_turns(asks: list[tuple[tuple[str, str], Template, int]]) -> None:
    line: WaitList[int] = WaitList()
    waiting: list[Waiter[int]] = []
    gone: list[Waiter[int]] = []
    for number, ((tenant, run), template, action) in enumerate(asks):
        if action == 0 and waiting:
            left = waiting.pop(number % len(waiting))
            assert line.remove(left)
            assert not line.remove(left)
        elif action == 1:
            popped = line.pop(template.key)
            mine = [w for w in waiting if w.key == template.key]
            assert (popped is None) is (not mine)
            if popped is not None:
                same = [w for w in mine if w.path == popped.path]
                assert popped is same[0], "within a run it is first in, first out"
                waiting.remove(popped)
                gone.append(popped)
        elif action == 2 and waiting:
            out_of_turn = waiting.pop(number % len(waiting))
            line.serve(out_of_turn)
            gone.append(out_of_turn)
        else:
            entered = waiter(tenant, number, template, run=run)
            line.add(entered)
            waiting.append(entered)
        assert len(line) == len(waiting)
        assert sorted(line.position(w) for w in waiting) == list(range(1, len(waiting) + 1))
        for each in TEMPLATES:
            mine = line.in_line(each.key)
            assert {w.value for w in mine} == {w.value for w in waiting if w.key == each.key}
            assert mine == sorted(mine, key=line.turn)
            for name in {w.tenant for w in mine}:
                places = [line.position(w) for w in mine if w.tenant == name]
                assert places == sorted(places)
            assert list(line.first(each.key, limit=3)) == mine[:3]
            assert line.head(each.key) is (mine[0] if mine else None)
            assert line.waiting(each.key, tenant="a") == sum(w.tenant == "a" for w in mine)
    for template in TEMPLATES:
        gone += served(line, len(asks), template.key)
    assert not len(line)
    assert len({w.value for w in gone}) == len(gone)


@given(ACTIONS, ACTIONS)
@example(
    [(TEMPLATES[1], GROUPS[0], "join")],
    [
        (TEMPLATES[1], GROUPS[2], "join"),
        (TEMPLATES[2], GROUPS[0], "join"),
        (TEMPLATES[2], GROUPS[0], "serve"),
        (TEMPLATES[1], GROUPS[0], "serve"),
    ],
)
@example(
    [(TEMPLATES[1], GROUPS[2], "front")],
    [
        (TEMPLATES[2], GROUPS[2], "serve"),
        (TEMPLATES[1], GROUPS[1], "join"),
        (TEMPLATES[2], GROUPS[1], "join"),
        (TEMPLATES[2], GROUPS[2], "join"),
    ],
)
@settings(deadline=None)
def test_later_creates_overtake_an_older_one_a_bounded_number_of_times(
    before: list[Action], again_and_again: list[Action]
) -> None:
    """Later creates are served ahead of an older one only until their groups have had as many turns as its own.

    So of each group there are at most as many as creates waited when it joined. Whoever goes to the front overtakes it,
    too, and one that leaves in vain gives its place to another.
    """
    line: WaitList[int] = WaitList()
    waiting: list[Waiter[int]] = []
    allowed: dict[
        int, int
    ] = {}  # of each create that waits: how many later ones may still be served before it
    for number, (template, (tenant, run), what) in enumerate([*before, *again_and_again * 20]):
        if what == "serve":
            if (one := line.pop(template.key)) is not None:
                waiting.remove(one)
                for other in waiting:
                    if other.key == one.key and other.value < one.value:
                        allowed[other.value] -= 1
                        assert allowed[other.value] >= 0
        elif what == "leave":
            if waiting:
                line.remove(waiting.pop(number % len(waiting)))
                allowed = {value: left + len(GROUPS) for value, left in allowed.items()}
        else:
            allowed = {value: left + (what == "front") for value, left in allowed.items()}
            allowed[number] = len(GROUPS) * (len(waiting) + 1)
            waiting.append(entered := waiter(tenant, number, template, run=run))
            line.add(entered, front=what == "front")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("rst"), st.booleans()), max_size=80))
@settings(deadline=None)
def test_tenants_and_the_runs_of_each_alternate_while_both_wait(asks: Asks) -> None:
    """Of two tenants, or two runs of one, that wait, neither is ever two turns ahead of the other."""
    line: WaitList[int] = WaitList()
    waiting: Counter[tuple[str, ...]] = Counter()
    # two groups of one parent that both wait -> how much more often the first was served meanwhile
    ahead: dict[tuple[tuple[str, ...], tuple[str, ...]], int] = {}

    def serve() -> None:
        one = line.pop(KEY)
        if one is None:
            return
        for group in ((one.tenant,), one.path):
            waiting[group] -= 1
            for pair in list(ahead):
                if group in pair:
                    ahead[pair] += 1 if group == pair[0] else -1
                    assert abs(ahead[pair]) <= 2
                    if not waiting[group]:
                        del ahead[pair]

    for number, (tenant, run, serve_first) in enumerate(asks):
        if serve_first:
            serve()
        others = Counter(path[0] for path in waiting if len(path) == 2 and waiting[path])
        one = waiter(tenant, number, run=run)
        line.add(one)
        if not waiting[one.path]:
            tenants = len(set(others) | {tenant})
            assert line.position(one) <= 2 * (others[tenant] + 1) * tenants, "a run's first is soon served"
        for group in ((tenant,), one.path):
            waiting[group] += 1
        for pair in combinations([group for group in waiting if waiting[group]], 2):
            if len(pair[0]) == len(pair[1]) and pair[0][:-1] == pair[1][:-1] and pair[::-1] not in ahead:
                ahead.setdefault(pair, 0)
    while len(line):
        serve()
