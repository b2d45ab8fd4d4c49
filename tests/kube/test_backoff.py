"""The waits between attempts: they grow, have an end, and go on however often it fails."""

from __future__ import annotations

import pytest
from sandlot_kube.backoff import pause


@pytest.mark.parametrize(("failures", "most"), [(1, 0.4), (3, 1.6), (16, 10.0), (100_000, 10.0)])
def test_it_stays_within_its_bounds(failures: int, most: float) -> None:
    found = [pause(failures, shortest=0.2, longest=10.0) for _ in range(200)]
    assert all(0.2 <= seconds <= most for seconds in found)
    assert max(found) > most / 2
