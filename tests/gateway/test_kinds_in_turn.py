"""Turns of a tenant whose creates wait for several kinds of instances: what waits in vain takes none from others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sandlot_gateway.core.fair_queue import Scheduling
from sandlot_gateway.core.template_line import Waiter
from sandlot_gateway.core.waiting import WaitList

from tests.gateway.priority_line import Runs, line_with
from tests.gateway.test_wait_list import TEMPLATES, served, waiter

CPU, GPU = TEMPLATES[0], TEMPLATES[2]


def joined(line: WaitList[int], tenant: str, run: str, count: int, *, gpu: bool = False) -> None:
    for number in range(count):
        line.add(waiter(tenant, number, GPU if gpu else CPU, run=run))


@pytest.mark.parametrize(
    "runs",
    [
        pytest.param({}, id="equal"),
        pytest.param({("a", "stuck"): Scheduling(priority=-100)}, id="lower"),
        pytest.param({("a", "new"): Scheduling(priority=100)}, id="higher"),
        pytest.param({("a", "new"): Scheduling(1000)}, id="heavy"),
    ],
)
def test_a_newcomer_has_no_turns_that_others_of_its_tenant_waited_for_in_vain(runs: Runs) -> None:
    line = line_with(runs)
    joined(line, "a", "stuck", 50, gpu=True)
    joined(line, "b", "", 400)
    assert len(served(line, 200)) == 200
    joined(line, "a", "new", 50)
    turns = served(line, 60)
    assert Counter(one.tenant for one in turns) == {"a": 30, "b": 30}
    assert {Counter(one.tenant for one in turns[at : at + 4])["a"] for at in range(0, 60, 4)} == {2}


def test_those_that_waited_in_vain_keep_their_turns_for_what_fits_them() -> None:
    line = line_with({("a", "stuck"): Scheduling(priority=-100)})
    joined(line, "a", "stuck", 5, gpu=True)
    joined(line, "b", "", 400)
    served(line, 200)
    joined(line, "a", "new", 50)
    joined(line, "b", "", 5, gpu=True)
    assert [one.tenant for one in served(line, 10, GPU.key)] == ["a"] * 5 + ["b"] * 5


def test_higher_ones_that_nothing_fits_put_back_no_lower_ones() -> None:
    line = line_with({("a", "high"): Scheduling(priority=5)})
    joined(line, "a", "low", 100)
    joined(line, "b", "", 100)
    joined(line, "a", "high", 50, gpu=True)
    assert Counter(one.tenant for one in served(line, 60)) == {"a": 30, "b": 30}


@pytest.mark.parametrize("priority", [0, -5, 5])
def test_what_waits_in_vain_costs_its_own_tenant_the_same_whatever_its_priority(priority: int) -> None:
    """A turn is given to whoever joins: those behind it have later ones until it has passed."""
    line = line_with({("a", "stuck"): Scheduling(priority=priority)})
    joined(line, "a", "stuck", 10, gpu=True)
    joined(line, "a", "", 40)
    joined(line, "b", "", 100)
    assert Counter(one.tenant for one in served(line, 50)) == {"a": 20, "b": 30}


def test_one_that_leaves_before_its_turn_leaves_it_to_the_next_of_its_kind() -> None:
    line = line_with({})
    joined(line, "b", "", 9)
    joined(line, "b", "", 9, gpu=True)
    mine = [waiter("a", number, GPU if number == 1 else CPU) for number in range(4)]
    for one in mine:
        line.add(one)
    line.remove(mine[0])
    gpu, *others = (line.turn(one) for one in mine[1:])
    assert others[0] < gpu < others[1]


RUNS = [("a", "r"), ("a", "s"), ("a", "t"), ("b", "r"), ("b", "s"), ("c", "r")]
Step = tuple[str, tuple[str, str], bool, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["join", "join", "join", "join", "serve", "serve", "serve", "leave", "out of turn", "change"]
        ),
        st.sampled_from(RUNS),
        st.booleans(),
        st.integers(1, 1000),
        st.integers(-2, 2),
    ),
    max_size=80,
)


def nth(line: WaitList[int], tenant: str, key: str, number: int) -> Waiter[int] | None:
    """Return one of a tenant's waiters for a template, by its place among them."""
    own = [one for one in line.in_line(key) if one.tenant == tenant]
    return own[number % len(own)] if own else None


@given(STEPS)
@example(
    [
        ("change", ("a", "s"), False, 1, 2),
        ("join", ("a", "r"), True, 1, 0),
        ("join", ("b", "r"), False, 1, 0),
        ("join", ("a", "s"), False, 1, 0),
    ]
)
@settings(deadline=None)
def test_whatever_the_runs_are_like_tenants_have_the_same_turns(steps: list[Step]) -> None:
    """Weights and priorities of runs say which of a tenant's creates is next, and never which tenant."""
    tenants: Runs = {("c",): Scheduling(3)}
    runs: Runs = dict(tenants)
    lines = ranked, plain = line_with(runs), line_with(tenants)

    def both(of: Callable[[WaitList[int]], Waiter[int] | None], do: Callable[..., object]) -> None:
        found = [(line, one) for line in lines if (one := of(line)) is not None]
        assert len({(one.tenant, one.key) for _, one in found}) <= 1
        assert len(found) in (0, 2)
        for line, one in found:
            do(line, one)

    for number, (what, (tenant, run), gpu, weight, priority) in enumerate(steps):
        template = GPU if gpu else CPU
        if what == "change":
            runs[tenant, run] = Scheduling(weight, priority)
            ranked.reschedule()
        elif what == "join":
            for line in lines:
                line.add(waiter(tenant, number, template, run=run))
        elif what == "serve":
            both(lambda line, key=template.key: line.head(key), WaitList.serve)
        else:
            both(
                lambda line, at=(tenant, template.key, number): nth(line, *at),
                WaitList.remove if what == "leave" else WaitList.serve,
            )
        for key in (CPU.key, GPU.key):
            assert [one.tenant for one in ranked.in_line(key)] == [one.tenant for one in plain.in_line(key)]
            for line in lines:
                in_line = line.in_line(key)
                assert list(line.first(key, limit=3)) == in_line[:3]
                assert in_line == sorted(in_line, key=line.turn)
                assert line.head(key) is (in_line[0] if in_line else None)
                assert all(line.first_of(reversed(in_line[at:])) is in_line[at] for at in range(len(in_line)))
    for key in (CPU.key, GPU.key):
        rest = plain.waiting(key)
        assert [one.tenant for one in served(ranked, rest, key)] == [
            one.tenant for one in served(plain, rest, key)
        ]
    assert not len(ranked)
    assert not len(plain)


def test_starts_of_a_kind_that_joined_late_take_no_turn_that_passed() -> None:
    line = line_with({("a", "high"): Scheduling(priority=5)})
    joined(line, "a", "low", 10, gpu=True)
    joined(line, "b", "", 40)
    served(line, 20)
    for number in range(4):
        line.add(waiter("a", 100 + number, TEMPLATES[1], run="high"))
    highs, others = line.in_line(TEMPLATES[1].key), line.in_line(CPU.key)
    turns = sorted([*highs, *others], key=line.start_turn)
    assert Counter(one.tenant for one in turns[:8]) == {"a": 4, "b": 4}
