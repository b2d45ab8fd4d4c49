"""The node's clock was set back: uses hold their images no longer than others do, and failures are not told for long."""

from __future__ import annotations

from pathlib import Path

from sandlot_node.failures import ImageError, Kind
from sandlot_node.images import SlotId

from tests.node.agents import Clock, PlayedEngine, failing, preparer_of, ready
from tests.node.registries import OPEN

A, B, C = (f"{OPEN}/{name}:1" for name in "abc")
HOLD = GRACE = 60.0
DAY = 86400.0


async def test_an_image_that_is_used_after_the_clock_was_set_back_is_idle_after_its_hold(
    engine: PlayedEngine, tmp_path: Path
) -> None:
    clock = Clock()
    clock.now = DAY
    preparer = preparer_of(engine, tmp_path, budget=20, hold=HOLD, clock=clock)
    early = await ready(preparer, A)
    preparer.use(early.id, SlotId("slot-1"))
    clock.now = 0.0
    late = await ready(preparer, B)
    preparer.use(late.id, SlotId("slot-2"))
    preparer.unuse(late.id, SlotId("slot-2"))
    clock.now += HOLD
    other = await ready(preparer, C)
    assert set(engine.attached) == {early.id, other.id}


async def test_a_use_after_the_clock_was_set_back_ends_with_its_pod(
    engine: PlayedEngine, tmp_path: Path
) -> None:
    clock = Clock()
    clock.now = DAY
    engine.pods = set()
    preparer = preparer_of(engine, tmp_path, use_grace=GRACE, clock=clock)
    image = await ready(preparer, A)
    preparer.use(image.id, SlotId("slot-1"))
    clock.now = 0.0
    preparer.use(image.id, SlotId("slot-2"))
    for _ in range(3):
        clock.now += GRACE
        await preparer.housekeep()
    assert preparer.ledger.entries[image.id].uses == {}


async def test_an_image_that_was_used_last_before_the_clock_was_set_back_is_idle(
    engine: PlayedEngine, tmp_path: Path
) -> None:
    clock = Clock()
    clock.now = DAY
    preparer = preparer_of(engine, tmp_path, budget=20, hold=HOLD, clock=clock)
    await ready(preparer, A)
    await ready(preparer, B)
    clock.now = 0.0
    await ready(preparer, B)  # its asker is about to say which slot uses it
    other = await ready(preparer, C)
    assert set(engine.attached) == {image.id for image in preparer.images()}
    assert [preparer.ledger.entries[image.id].names for image in preparer.images()] == [[B], [C]]
    assert other.id in engine.attached


async def test_a_failure_before_the_clock_was_set_back_is_tried_again(
    engine: PlayedEngine, tmp_path: Path
) -> None:
    clock = Clock()
    clock.now = DAY
    preparer = preparer_of(engine, tmp_path, clock=clock, failure_seconds=5.0)
    engine.refuse = {(A, None): ImageError(Kind.NOT_FOUND, "no such image")}
    await failing(preparer, A)
    clock.now = 0.0
    engine.refuse = {}
    await ready(preparer, A)
