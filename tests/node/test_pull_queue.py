"""Which preparations wait for others: a few pulls at a time, in turns of tenants, and none for an image that is there."""

from __future__ import annotations

from pathlib import Path

from sandlot_node.failures import Kind
from sandlot_node.images import Auth, Progress, SlotId
from sandlot_node.requests import Request

from tests.node.agents import Clock, PlayedEngine, failing, preparer_of, ready
from tests.node.registries import OPEN
from tests.waiting import loop_turns, until

A, B, C = (f"{OPEN}/{name}:1" for name in "abc")
AUTH = Auth(username="anne", password="a secret")


async def test_pulls_run_a_few_at_a_time(engine: PlayedEngine, tmp_path: Path) -> None:
    preparer = preparer_of(engine, tmp_path, pulls=2)
    engine.gate.clear()
    for reference in (A, B, C):
        await preparer.prepare(Request(reference=reference))
    await until(lambda: len(engine.pulls) == 2)
    await loop_turns(10)  # in which a third would begin
    assert len(engine.pulls) == 2
    assert await preparer.prepare(Request(reference=C)) == Progress("waiting")
    engine.gate.set()
    await ready(preparer, C)
    assert len(engine.pulls) == 3


async def test_the_pulls_of_one_tenant_do_not_hold_up_the_first_one_of_another(
    engine: PlayedEngine, tmp_path: Path
) -> None:
    preparer = preparer_of(engine, tmp_path, pulls=2)
    engine.gate.clear()
    many = [f"{OPEN}/many:{number}" for number in range(100)]
    for reference in many:
        await preparer.prepare(Request(reference=reference, tenant="anne"))
    await until(lambda: len(engine.pulls) == 2)
    assert [reference for reference, _ in engine.pulls] == many[:2]
    for reference in (A, many[-1]):
        assert await preparer.prepare(Request(reference=reference, tenant="ben")) == Progress("waiting")
    engine.gate.set()
    await ready(preparer, many[-1], tenant="ben")
    order = [reference for reference, _ in engine.pulls]
    assert order.index(A) < 4, "as soon as a pull of anne's has ended"
    assert order.index(many[-1]) < 6, "what anne asked for, too, is in the place that ben's has"
    await preparer.stop()


async def test_an_image_that_is_there_waits_for_no_pull_and_needs_no_space(
    engine: PlayedEngine, tmp_path: Path
) -> None:
    clock = Clock()
    preparer = preparer_of(engine, tmp_path, clock=clock, pulls=1, min_free=100)
    image = await ready(preparer, A, tenant="anne")
    preparer.use(image.id, SlotId("slot-1"))
    clock.now += 300
    engine.gate.clear()
    engine.slow = {B}
    await preparer.prepare(Request(reference=B))
    await until(lambda: len(engine.pulls) == 2)
    engine.left = 99
    assert await ready(preparer, A, tenant="anne") == image, (
        "the registry was asked, and the tag means the same"
    )
    assert [reference for reference, _ in engine.pulls] == [A, B, A]
    await preparer.stop()


async def test_an_image_that_comes_while_others_wait_for_it_is_pulled_once_and_theirs_at_once(
    engine: PlayedEngine, tmp_path: Path
) -> None:
    preparer = preparer_of(engine, tmp_path, pulls=1)
    engine.gate.clear()
    await preparer.prepare(Request(reference=A, tenant="anne", auth=AUTH))
    await until(lambda: engine.pulls)
    for number in range(20):
        await preparer.prepare(Request(reference=f"{OPEN}/many:{number}", tenant="ben"))
    await preparer.prepare(Request(reference=A, tenant="ben", auth=AUTH))
    engine.slow = {f"{OPEN}/many:{number}" for number in range(20)}
    engine.gate.set()
    engine.gate.clear()
    image = await ready(preparer, A, tenant="ben", auth=AUTH)
    assert image.id == engine.id_of(A)
    assert sorted(engine.pulls, key=str) == sorted(
        [(A, AUTH), (A, AUTH), (f"{OPEN}/many:0", None)], key=str
    ), "ben's proof took no turn, and the next pull goes on"
    await preparer.stop()


async def test_a_tag_that_means_another_image_by_now_needs_space_for_it(
    engine: PlayedEngine, tmp_path: Path
) -> None:
    clock = Clock()
    preparer = preparer_of(engine, tmp_path, clock=clock, min_free=100)
    image = await ready(preparer, A)
    preparer.use(image.id, SlotId("slot-1"))
    clock.now += 300
    engine.ids[A] = engine.id_of(B)
    engine.left = 99
    assert (await failing(preparer, A)).kind is Kind.NO_SPACE
    assert set(engine.attached) == {image.id}
    engine.left = 100
    assert (await ready(preparer, A)).id == engine.id_of(B)
