"""The grace of a stop."""

from __future__ import annotations

from sandlot_contract.stop_grace import MAX_STOP_GRACE, STOP_GRACE


def test_the_usual_grace_is_in_bounds() -> None:
    assert 0 < STOP_GRACE <= MAX_STOP_GRACE
