"""The grace of a stop."""

from __future__ import annotations

from typing import Any

import pytest
from sandlot_contract.stop_grace import MAX_STOP_GRACE, STOP_GRACE, is_stopping


def test_the_usual_grace_is_in_bounds() -> None:
    assert 0 < STOP_GRACE <= MAX_STOP_GRACE


@pytest.mark.parametrize(
    ("state", "stops"),
    [
        ({"start_command": {"state": "stopping", "exit_code": None}}, True),
        ({"start_command": {"state": "ended", "exit_code": 7}}, False),
        ({"start_command": None}, False),
        ({"start_command": ["stopping"]}, False),
        ({}, False),
    ],
)
def test_a_state_document_tells_of_a_stop(state: dict[str, Any], stops: bool) -> None:
    assert is_stopping(state) is stops
