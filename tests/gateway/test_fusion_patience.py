"""How long a client waits, as its URL says."""

from __future__ import annotations

import pytest
from sandlot_gateway.fusion.patience import MOST, BadPatience, patience_of


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
