"""Lines of waiting creates whose runs have priorities."""

from __future__ import annotations

from collections.abc import Sequence

from sandlot_gateway.core.fair_queue import Scheduling
from sandlot_gateway.core.waiting import WaitList

from tests.gateway.test_wait_list import waiter

Runs = dict[tuple[str, ...], Scheduling]
HIGH, LOW = Scheduling(priority=5), Scheduling(priority=-5)


def line_with(runs: Runs) -> WaitList[int]:
    return WaitList(lambda path: runs.get(tuple(path), Scheduling()))


def filled(runs: Runs, paths: Sequence[tuple[str, str]], *, each: int) -> WaitList[int]:
    """Return a line in which each of these runs has as many waiters."""
    line = line_with(runs)
    for tenant, run in paths:
        for number in range(each):
            line.add(waiter(tenant, number, run=run))
    return line
