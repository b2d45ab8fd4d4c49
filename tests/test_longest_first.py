"""The longest tests are at the beginnings of the workers' stretches, and none is lost."""

from __future__ import annotations

import pytest

from tests.plugins.longest_first import spread


@pytest.mark.parametrize("workers", [1, 2, 3, 6])
@pytest.mark.parametrize(("longest", "others"), [(0, 0), (1, 0), (7, 0), (0, 5), (2, 100), (5, 7), (9, 3)])
def test_every_test_is_there_once(longest: int, others: int, workers: int) -> None:
    first, rest = [f"long-{n}" for n in range(longest)], [f"other-{n}" for n in range(others)]
    ordered = spread([first[at : at + 2] for at in range(0, longest, 2)], rest, workers=workers)
    assert sorted(ordered) == sorted(first + rest)
    assert [one for one in ordered if one in rest] == rest, "the order of the others stays"


def test_each_worker_begins_with_its_share_and_a_group_stays_together() -> None:
    ordered = spread([["a", "A"], ["b"], ["c"], ["d"]], [str(number) for number in range(8)], workers=3)
    assert ordered == ["a", "A", "d", "0", "b", "1", "2", "3", "c", "4", "5", "6", "7"]
