"""Begins the tests that take longest before all others: one that began last would leave the other workers idle.

Each worker gets a stretch of the list first (`--dist worksteal`), so that they are at the beginnings of the stretches.
Where a whole module is marked, what takes long is a fixture of it: its tests stay together, since each worker makes one.
"""

from __future__ import annotations

from typing import TypeVar

import pytest

T = TypeVar("T")


def spread(longest: list[list[T]], others: list[T], *, workers: int) -> list[T]:
    """In stretches of the lengths that xdist makes, each with its share of the longest groups first."""
    ordered: list[T] = []
    rest, left = list(others), sum(map(len, longest)) + len(others)
    for number in range(workers):
        length = left // (workers - number)
        left -= length
        stretch = [one for group in longest[number::workers] for one in group]
        room = max(0, length - len(stretch))
        ordered += stretch + rest[:room]
        del rest[:room]
    return ordered + rest


@pytest.hookimpl(trylast=True)  # after the order was shuffled, and others were taken out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    worker = getattr(config, "workerinput", None)
    if worker is None:
        return
    longest: dict[str, list[pytest.Item]] = {}
    others: list[pytest.Item] = []
    for item in items:
        if item.get_closest_marker("longest") is None:
            others.append(item)
            continue
        module = item.parent
        marked = module is not None and module.get_closest_marker("longest") is not None
        longest.setdefault(module.nodeid if module and marked else item.nodeid, []).append(item)
    items[:] = spread(list(longest.values()), others, workers=int(worker["workercount"]))
