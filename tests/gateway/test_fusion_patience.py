"""How long a client waits, as its URL says."""

from __future__ import annotations

import pytest
from sandlot_gateway.fusion.patience import MOST, BadPatience, patience_of, pause_after


@pytest.mark.parametrize(
    ("query", "seconds"), [("", 0.0), ("other=1", 0.0), ("patience=2.5", 2.5), (f"patience={MOST}", MOST)]
)
def test_patience_is_read(query: str, seconds: float) -> None:
    assert patience_of(query.encode()) == seconds


@pytest.mark.parametrize(
    "query",
    ["patience=-1", "patience=3601", "patience=nan", "patience=long", "patience=", "patience=1&patience=2"],
)
def test_a_bad_patience_is_refused(query: str) -> None:
    with pytest.raises(BadPatience, match="0 to 3600"):
        patience_of(query.encode())


@pytest.mark.parametrize(
    ("patience", "pauses"),
    [(0.0, [0.0, 0.0, None]), (9.0, [0.0, 0.0, 1.0, 2.0, 4.0])],
    ids=["without", "with"],
)
def test_losses_end_only_a_request_without_patience(patience: float, pauses: list[float | None]) -> None:
    assert [pause_after(losses + 1, patience=patience) for losses in range(len(pauses))] == pauses


def test_many_sandboxes_found_dead_are_rare_for_a_client_with_patience() -> None:
    assert [pause_after(0, unused=unused, patience=9.0) for unused in (20, 22, 23, 24)] == [
        0.0,
        0.0,
        1.0,
        2.0,
    ]
    assert pause_after(0, unused=1000, patience=0.0) == 0.0


def test_a_pause_is_never_long() -> None:
    assert pause_after(1000, patience=1.0) == 60.0
