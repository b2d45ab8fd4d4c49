"""Creates through one gateway over stub slots, in small: its rows are there, and nothing of it stays behind."""

from __future__ import annotations

import os
import tempfile

import pytest

from loadtests.bounds import read_bounds
from loadtests.gateway.create_rate_rows import ROWS, create_rate
from loadtests.processes import with_mark
from loadtests.requirements import Requirement, missing

pytestmark = [
    pytest.mark.programs,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        missing((Requirement.ROOT, Requirement.API_SERVER)) is not None, reason="needs root and an API server"
    ),
]


async def test_every_row_is_told_and_nothing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="sandlot-") as home:
        monkeypatch.setattr(tempfile, "tempdir", home)
        # Fewer slots than callers: without resets there would be eight creates and no more.
        found = await create_rate(slots=8, seconds=2.0)
        assert with_mark(home) == []
        assert os.listdir(home) == []
    assert tuple(found) == ROWS
    assert set(ROWS) <= read_bounds().keys()
    assert all(reading.value > 0 for reading in found.values())
    assert all(found["create_rate_p99"].curves.values())
