"""Names that are due at a time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from sandlot_controller.act.timers import Timers


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 20)), max_size=30), st.integers(0, 20))
def test_a_name_is_due_once_at_its_earliest(sets: list[tuple[str, int]], now: int) -> None:
    timers = Timers()
    for name, at in sets:
        timers.set(name, at)
    earliest = {name: min(at for other, at in sets if other == name) for name, _ in sets}
    due = timers.pop_due(now)
    assert sorted(due) == sorted(name for name, at in earliest.items() if at <= now)
    assert timers.next_at() == min((at for at in earliest.values() if at > now), default=None)
