"""Slots and images on kwok's nodes, in small: its rows are there, and each sandbox finds or pulls its image."""

from __future__ import annotations

import pytest

from loadtests.bench_cluster import SPEC
from loadtests.bounds import read_bounds
from loadtests.cluster.image_claims import ROWS, Size, image_claims
from loadtests.cluster.simulated_cluster import why_not

pytestmark = [
    pytest.mark.programs,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(why_not()), reason=str(why_not())),
]


async def test_every_row_is_told() -> None:
    found = await image_claims(Size(nodes=10, slots_per_node=4))
    assert tuple(found) == ROWS
    bounds = read_bounds(SPEC)
    assert set(ROWS) <= bounds.keys()
    assert found["slots_placed"].parts["nodes"] == "10"
    # What is chosen does not depend on how busy the machine is.
    assert bounds["starts_simulated"].held(found["starts_simulated"].value)
    images = found["images_local"]
    assert images.parts["sandboxes"] == "32"
    assert images.value == 1 - int(images.parts["pulls"]) / 32
