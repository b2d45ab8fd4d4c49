"""Begins the tests that take longest before all others: one that began last would leave the other workers idle.

Each worker gets a stretch of the list first (`--dist worksteal`), so that they are at the beginnings of the stretches.
"""

from __future__ import annotations

from typing import TypeVar

import pytest

T = TypeVar("T")


def spread(longest: list[T], others: list[T], *, workers: int) -> list[T]:
    """In stretches of the lengths that xdist makes, each with its share of the longest first."""
    ordered: list[T] = []
    rest, left = list(others), len(longest) + len(others)
    for number in range(workers):
        length = left // (workers - number)
        left -= length
        stretch = longest[number::workers]
        room = max(0, length - len(stretch))
        ordered += stretch + rest[:room]
        del rest[:room]
    return ordered + rest


@pytest.hookimpl(trylast=True)  # after the order was shuffled, and others were taken out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    worker = getattr(config, "workerinput", None)
    if worker is None:
        return
    longest = [item for item in items if item.get_closest_marker("longest")]
    others = [item for item in items if not item.get_closest_marker("longest")]
    items[:] = spread(longest, others, workers=int(worker["workercount"]))
