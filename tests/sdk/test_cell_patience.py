"""When a Python context that does not answer counts as stopped: not because of other clients' cells."""

from __future__ import annotations

import pytest
from sandlot._protocol.patience import Patience


@pytest.mark.parametrize(
    ("seen", "over"),
    [
        ([(0, None), (9, None), (11, None)], [False, False, True]),
        ([(0, "mine"), (9, "mine"), (11, "mine")], [False, False, True]),
        ([(9, "other"), (18, "other"), (27, "other")], [False, False, False]),
        ([(9, "other"), (9.5, "mine"), (19, "mine"), (20, "mine")], [False, False, False, True]),
        ([(9, None), (9.5, "mine"), (19, "mine"), (20, "mine")], [False, False, False, True]),
        ([(9, "other"), (18, None), (28, None), (29, None)], [False, False, False, True]),
    ],
)
def test_a_cells_time_counts_from_its_begin(seen: list[tuple[float, str | None]], over: list[bool]) -> None:
    patience = Patience(10, cell="mine", now=0)
    assert [patience.is_over(running, now=now) for now, running in seen] == over


def test_calls_that_run_no_cell_count_from_their_begin() -> None:
    patience = Patience(10, cell=None, now=0)
    assert [patience.is_over("other", now=now) for now in (5, 11)] == [False, True]
    assert not Patience(None, cell="mine", now=0).is_over("mine", now=1000)
