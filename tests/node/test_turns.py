"""Whose pull is next: no tenant waits for all of another's, no place stays empty, and work of one tenant is in order."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from sandlot_node.turns import Turns

TENANTS = ["anne", "ben", None]
events = st.one_of(
    st.tuples(st.just("ask"), st.integers(0, 12), st.sampled_from(TENANTS)),
    st.tuples(st.just("end"), st.integers(0, 12), st.none()),
)


def test_tenants_take_turns() -> None:
    turns: Turns[str] = Turns(limit=1)
    for work in ("a1", "a2", "a3"):
        turns.ask(work, "anne")
    assert turns.begin() == ["a1"]
    turns.ask("b1", "ben")
    turns.ask("c1", None)
    order: list[str] = []
    running = "a1"
    for _ in range(4):
        turns.end(running)
        (running,) = turns.begin()
        order.append(running)
    assert order == ["b1", "c1", "a2", "a3"]


def test_the_tenant_with_the_fewest_that_run_is_next() -> None:
    turns: Turns[str] = Turns(limit=3)
    for work in ("a1", "a2", "a3", "a4"):
        turns.ask(work, "anne")
    assert turns.begin() == ["a1", "a2", "a3"]
    turns.ask("b1", "ben")
    turns.ask("b2", "ben")
    turns.end("a1")
    assert turns.begin() == ["b1"]
    turns.end("a2")
    assert turns.begin() == ["a4"], "both have one that runs, and it is longer since anne had a turn"


def test_what_two_tenants_ask_for_begins_once_when_the_first_of_them_has_its_turn() -> None:
    turns: Turns[str] = Turns(limit=1)
    for work in ("a1", "a2", "shared"):
        turns.ask(work, "anne")
    assert turns.begin() == ["a1"]
    turns.ask("shared", "ben")
    turns.ask("a1", "ben")
    turns.end("a1")
    assert turns.begin() == ["shared"], "it is ben's turn"
    turns.end("shared")
    assert turns.begin() == ["a2"]
    turns.end("a2")
    assert turns.begin() == []


@given(st.lists(events, max_size=60), st.integers(1, 4))
def test_places_are_used_and_shared(happened: list[tuple[str, int, str | None]], limit: int) -> None:
    turns: Turns[int] = Turns(limit=limit)
    waiting: dict[int, set[str | None]] = {}
    running: set[int] = set()
    for kind, work, tenant in happened:
        if kind == "ask":
            turns.ask(work, tenant)
            if work not in running:
                waiting.setdefault(work, set()).add(tenant)
        else:
            turns.end(work)
            waiting.pop(work, None)
            running.discard(work)
        for begun in turns.begin():
            assert begun in waiting
            del waiting[begun]
            assert begun not in running
            running.add(begun)
        assert len(running) <= limit
        assert len(running) == limit or not waiting


@given(st.permutations([*("a" * 12), *("b" * 5), *("c" * 3)]), st.integers(1, 4))
def test_while_all_wait_each_tenant_has_had_as_many_turns(asked: list[str], limit: int) -> None:
    turns: Turns[tuple[str, int]] = Turns(limit=limit)
    count: Counter[str] = Counter()
    for tenant in asked:
        turns.ask((tenant, count[tenant]), tenant)
        count[tenant] += 1
    served: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    running: list[tuple[str, int]] = []
    while begun := turns.begin():
        for tenant, number in begun:
            served[tenant].append(number)
            if len(served["c"]) < 3:
                turns_had = [len(numbers) for numbers in served.values()]
                assert max(turns_had) - min(turns_had) <= 1
        running += begun
        turns.end(running.pop(0))
    assert {tenant: len(numbers) for tenant, numbers in served.items()} == count
    assert all(numbers == sorted(numbers) for numbers in served.values())
