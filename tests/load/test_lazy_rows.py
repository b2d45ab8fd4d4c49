"""The row of lazily loaded images: what makes it a comparison at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loadtests.cluster.lazy_rows import FirstUse, reading

SIZE = 1_000_000_000
TOLD = ("preparing the image on node n", *(f"pulling, {part} of 1000 MB" for part in (100, 600)))
WHOLE = FirstUse(seconds=30.0, told=TOLD, served=SIZE + 5000)
LAZY = FirstUse(seconds=1.5, told=(), served=9_000_000)


def test_it_is_the_share_of_the_whole_pulls_time() -> None:
    found = reading(WHOLE, LAZY, size=SIZE)
    assert found.value == pytest.approx(0.05)
    assert found.parts["told of the whole pull"] == "2 times, at last 'pulling, 600 of 1000 MB'"
    assert found.parts["served"] == "1000 and 9.0 MB of 1000"


def test_a_node_that_had_the_image_compares_nothing() -> None:
    with pytest.raises(RuntimeError, match="the node had the image"):
        reading(replace(WHOLE, served=SIZE - 1), LAZY, size=SIZE)


def test_a_whole_pull_must_be_told() -> None:
    with pytest.raises(RuntimeError, match="callers were not told how far the pull was"):
        reading(replace(WHOLE, told=TOLD[:2]), LAZY, size=SIZE)
