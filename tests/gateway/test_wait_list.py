"""The line of waiting creates as plain data."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from sandlot_contract.template import Template
from sandlot_gateway.core.waiting import Waiter, WaitList

TEMPLATES = [Template(image="a"), Template(image="b"), Template(image="a", cpu=2.0)]


def waiter(tenant: str, value: int, template: Template = TEMPLATES[0]) -> Waiter[int]:
    return Waiter(template, template.key, tenant, value)


def test_a_tenant_with_many_does_not_delay_another() -> None:
    line: WaitList[int] = WaitList()
    for number in range(100):
        line.add(waiter("greedy", number))
    line.add(waiter("modest", 1000))
    order = [line.pop(TEMPLATES[0].key) for _ in range(3)]
    assert [w.tenant for w in order if w is not None] == ["greedy", "modest", "greedy"]


def test_front_is_served_next_and_positions_tell_the_order() -> None:
    line: WaitList[int] = WaitList()
    first, second, again = waiter("a", 1), waiter("a", 2), waiter("b", 3)
    line.add(first)
    line.add(second)
    line.add(again, front=True)
    assert [line.position(w) for w in (again, first, second)] == [1, 2, 3]
    assert line.pop(TEMPLATES[0].key) is again


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(TEMPLATES), st.integers(0, 3)), max_size=60)
)
@settings(deadline=None)
def test_everybody_is_served_once_and_in_turns(asks: list[tuple[str, Template, int]]) -> None:
    line: WaitList[int] = WaitList()
    waiting: list[Waiter[int]] = []
    served: list[Waiter[int]] = []
    for number, (tenant, template, action) in enumerate(asks):
        if action == 0 and waiting:
            left = waiting.pop(number % len(waiting))
            assert line.remove(left)
            assert not line.remove(left)
        elif action == 1:
            popped = line.pop(template.key)
            mine = [w for w in waiting if w.key == template.key]
            assert (popped is None) is (not mine)
            if popped is not None:
                same = [w for w in mine if w.tenant == popped.tenant]
                assert popped is same[0], "within a tenant it is first in, first out"
                waiting.remove(popped)
                served.append(popped)
        else:
            entered = waiter(tenant, number, template)
            line.add(entered)
            waiting.append(entered)
        assert len(line) == len(waiting)
        assert sorted(line.position(w) for w in waiting) == list(range(1, len(waiting) + 1))
    assert len({w.value for w in served}) == len(served)
