"""How often a pod's disk is measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandlot_sidecar.server.disk import (
    FASTEST,
    FASTEST_FILES,
    LEAST,
    MOST,
    SHARE,
    SHARE_ABOVE,
    SOONEST,
    pause,
)

MIB = 1 << 20


@pytest.mark.parametrize(
    ("cost", "room", "seconds"),
    [
        (0.0, 0, LEAST),
        (0.004, 128 * MIB, LEAST),
        (0.004, 4 * FASTEST, 4.0),
        (0.004, 1000 * FASTEST, MOST),
        (0.2, 128 * MIB, 4.0),  # a tree of many files
        (0.001, -5 * MIB, LEAST),  # full already
    ],
)
def test_little_room_is_looked_at_soon_and_much_room_seldom(cost: float, room: int, seconds: float) -> None:
    assert pause(cost=cost, room=room, files=1 << 30) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("files", "seconds"), [(0, SOONEST), (-9, SOONEST), (FASTEST_FILES // 2, 0.5), (1 << 30, MOST)]
)
def test_few_files_more_are_looked_at_sooner(files: int, seconds: float) -> None:
    assert pause(cost=0.0, room=1 << 60, files=files) == pytest.approx(seconds)


@given(st.floats(0, 100), st.integers(-(1 << 40), 1 << 50), st.integers(-(1 << 30), 1 << 40))
def test_looking_takes_no_more_than_its_share_and_a_disk_is_never_forgotten(
    cost: float, room: int, files: int
) -> None:
    seconds = pause(cost=cost, room=room, files=files)
    assert seconds >= SOONEST
    share = SHARE_ABOVE if min(room, files) < 0 else SHARE
    assert cost <= seconds / share * (1 + 1e-9)
    assert seconds <= max(MOST, share * cost)
