"""How many creates of a tenant and of a run may wait."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from sandlot_gateway.core.waiting import WaitList

from tests.gateway.test_wait_list import KEY, waiter


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 5), st.integers(0, 9)), min_size=40, max_size=200
    )
)
@settings(deadline=None)
def test_bounds_hold_and_who_has_less_than_its_share_is_never_refused(
    asks: list[tuple[str, int, int]],
) -> None:
    limit, tenth = 40, 4
    line: WaitList[int] = WaitList()
    waiting: Counter[tuple[str, ...]] = Counter()
    for number, (tenant, run, action) in enumerate(asks):
        if action == 0 and (one := line.pop(KEY)) is not None:
            waiting.subtract([(one.tenant,), one.path])
        one = waiter(tenant, number, run=f"run-{run}")
        full = line.full(one.tenant, one.run, limit=limit)
        runs = sum(path[0] == tenant and waiting[path] > 0 for path in waiting if len(path) == 2)
        share = tenth // (runs + (not waiting[one.path]))
        assert (full is None) is (len(line) < limit or waiting[tenant,] < tenth or waiting[one.path] < share)
        if full is None:
            line.add(one)
            waiting.update([(tenant,), one.path])
        else:
            assert (full.waiting, full.limit, full.tenant, full.run) == (len(line), limit, tenant, one.run)
            assert (full.of_tenant, full.of_run) == (waiting[tenant,], waiting[one.path])
            assert full.share == share
        # Of k runs that came in beyond a full queue, the last may have a k-th of the tenth when it did.
        assert len(line) <= limit + 2 * sum(tenth // k for k in range(1, tenth + 1))
