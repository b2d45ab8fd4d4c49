"""What the agent does with requests, on an engine that is played: one pull for many, access, budget, restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sandlot_node.failures import ImageError, Kind
from sandlot_node.images import Auth, Image, Progress, SlotId
from sandlot_node.requests import Request

from tests.node.agents import Clock, PlayedEngine, failing, preparer_of, ready
from tests.node.registries import OPEN
from tests.waiting import until

A, B, C = (f"{OPEN}/{name}:1" for name in "abc")
AUTH = Auth(username="anne", password="a secret")


async def test_many_requests_for_an_image_are_one_pull(engine: PlayedEngine, tmp_path: Path) -> None:
    preparer = preparer_of(engine, tmp_path)
    engine.gate.clear()
    first = await preparer.prepare(Request(reference=A))
    assert first == Progress("pulling", 1, 10)
    assert await preparer.prepare(Request(reference=A, tenant="ben"), wait=0.05) == Progress("pulling", 1, 10)
    engine.gate.set()
    images = await asyncio.gather(*(ready(preparer, A, tenant=f"t{number}") for number in range(20)))
    assert len({image.id for image in images}) == 1
    assert engine.pulls == [(A, None)]


async def test_of_many_names_for_an_image_the_latest_are_kept(engine: PlayedEngine, tmp_path: Path) -> None:
    preparer = preparer_of(engine, tmp_path)
    image = await ready(preparer, A)
    for number in range(150):
        engine.ids[f"{OPEN}/other:{number}"] = image.id
        await ready(preparer, f"{OPEN}/other:{number}")
        await ready(preparer, A)
    names = preparer.ledger.entries[image.id].names
    assert names == [*(f"{OPEN}/other:{number}" for number in range(51, 150)), A]
    await preparer.stop()
    again = preparer_of(engine, tmp_path)
    await again.start()
    assert again.ledger.entries[image.id].names == names


async def test_each_tenant_proves_its_right_to_a_private_image(engine: PlayedEngine, tmp_path: Path) -> None:
    denied = ImageError(Kind.UNAUTHORIZED, "denied")
    engine.refuse = {(A, None): denied, (A, "wrong"): denied}
    preparer = preparer_of(engine, tmp_path)
    image = await ready(preparer, A, tenant="anne", auth=AUTH)
    assert await ready(preparer, A, tenant="anne") == image, "proven a moment ago"
    assert await ready(preparer, A, tenant="anne", auth=AUTH) == image
    assert engine.pulls == [(A, AUTH)]
    assert (await failing(preparer, A, tenant="ben")).kind is Kind.UNAUTHORIZED
    assert (await failing(preparer, A)).kind is Kind.UNAUTHORIZED
    wrong = Auth(username="ben", password="wrong")
    assert (await failing(preparer, A, tenant="ben", auth=wrong)).kind is Kind.UNAUTHORIZED
    assert await ready(preparer, A, tenant="ben", auth=Auth(username="ben", password="right")) == image


async def test_a_preparation_with_other_credentials_is_another_one(
    engine: PlayedEngine, tmp_path: Path
) -> None:
    engine.refuse = {(A, None): ImageError(Kind.UNAUTHORIZED, "denied")}
    engine.gate.clear()
    preparer = preparer_of(engine, tmp_path)
    asked = [
        asyncio.create_task(ready(preparer, A, tenant="anne", auth=AUTH)),
        asyncio.create_task(ready(preparer, A, tenant="ben", auth=AUTH)),
        asyncio.create_task(ready(preparer, A, tenant="ben")),
    ]
    await until(lambda: len(engine.pulls) == 3)
    engine.gate.set()
    first, second, third = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(first, Image)
    assert first == second
    assert isinstance(third, ImageError), "anne's pull is no proof for ben"


async def test_a_proof_ends_and_is_asked_for_again(engine: PlayedEngine, tmp_path: Path) -> None:
    clock = Clock()
    preparer = preparer_of(engine, tmp_path, clock=clock)
    await ready(preparer, A, tenant="anne", auth=AUTH)
    clock.now += 299
    await ready(preparer, A, tenant="anne")
    assert len(engine.pulls) == 1
    clock.now += 1
    engine.refuse = {(A, AUTH.password): ImageError(Kind.UNAUTHORIZED, "revoked")}
    assert (await failing(preparer, A, tenant="anne", auth=AUTH)).kind is Kind.UNAUTHORIZED


async def test_an_image_name_must_be_valid_and_its_registry_allowed(
    engine: PlayedEngine, tmp_path: Path
) -> None:
    preparer = preparer_of(engine, tmp_path)
    assert (await failing(preparer, "example.org/a:1")).kind is Kind.NOT_ALLOWED
    assert (await failing(preparer, "python:3")).kind is Kind.NOT_ALLOWED
    assert (await failing(preparer, "../../etc")).kind is Kind.INVALID
    public = preparer_of(engine, tmp_path, registries=())
    assert (await failing(public, "127.0.0.1:5000/a")).kind is Kind.NOT_ALLOWED
    await ready(public, "python:3")


async def test_a_failure_is_told_for_a_moment_and_then_tried_again(
    engine: PlayedEngine, tmp_path: Path
) -> None:
    clock = Clock()
    preparer = preparer_of(engine, tmp_path, clock=clock, failure_seconds=5.0)
    engine.refuse = {(A, None): ImageError(Kind.NOT_FOUND, "no such image")}
    await failing(preparer, A)
    await failing(preparer, A)
    assert len(engine.pulls) == 1
    clock.now += 5
    engine.refuse = {}
    await ready(preparer, A)


async def test_the_least_recently_used_goes_when_the_budget_is_exceeded(
    engine: PlayedEngine, tmp_path: Path
) -> None:
    clock = Clock()
    preparer = preparer_of(engine, tmp_path, budget=20, clock=clock)
    for reference in (A, B):
        await ready(preparer, reference)
        clock.now += 1
    await ready(preparer, A)
    clock.now += 1
    await ready(preparer, C)
    assert (
        {image.id for image in preparer.images()}
        == {engine.id_of(A), engine.id_of(C)}
        == set(engine.attached)
    )


async def test_what_a_slot_uses_stays_and_a_further_image_is_refused(
    engine: PlayedEngine, tmp_path: Path
) -> None:
    preparer = preparer_of(engine, tmp_path, budget=20)
    for number, reference in enumerate((A, B)):
        image = await ready(preparer, reference)
        preparer.use(image.id, SlotId(f"slot-{number}"))
    refused = await failing(preparer, C)
    assert refused.kind is Kind.NO_SPACE
    assert "20 are taken by images in use or asked for a moment ago, and this one needs 10" in refused.message
    assert set(engine.attached) == {engine.id_of(A), engine.id_of(B)}
    preparer.unuse(engine.id_of(A), SlotId("slot-0"))
    await ready(preparer, C)
    assert set(engine.attached) == {engine.id_of(B), engine.id_of(C)}


async def test_an_image_that_was_just_asked_for_is_not_evicted(engine: PlayedEngine, tmp_path: Path) -> None:
    clock = Clock()
    preparer = preparer_of(engine, tmp_path, budget=10, hold=60, clock=clock)
    await ready(preparer, A)
    assert (await failing(preparer, B)).kind is Kind.NO_SPACE
    clock.now += 60
    await ready(preparer, B)
    assert set(engine.attached) == {engine.id_of(B)}


async def test_idle_images_go_for_free_space_before_a_pull(engine: PlayedEngine, tmp_path: Path) -> None:
    preparer = preparer_of(engine, tmp_path, min_free=100)
    await ready(preparer, A)
    engine.left = 99
    refused = await failing(preparer, B)
    assert refused.kind is Kind.NO_SPACE
    assert not engine.attached, "the idle one went, and it was not enough"
    assert engine.pulls == [(A, None)], "nothing was pulled onto a full disk"


async def test_a_later_use_has_a_greater_time_whatever_the_clock_says(
    engine: PlayedEngine, tmp_path: Path
) -> None:
    clock = Clock()
    preparer = preparer_of(engine, tmp_path, clock=clock)
    image, slot = await ready(preparer, A), SlotId("slot-1")
    first = preparer.use(image.id, slot)
    clock.now -= 3600
    preparer.use(image.id, slot)
    preparer.unuse(image.id, slot, until=first)
    assert preparer.ledger.entries[image.id].uses.keys() == {slot}
    second = preparer_of(engine, tmp_path, clock=clock)
    await second.start()
    assert second.use(image.id, slot) > first


async def test_a_restarted_agent_knows_which_slots_use_what(engine: PlayedEngine, tmp_path: Path) -> None:
    first = preparer_of(engine, tmp_path, budget=20)
    image = await ready(first, A)
    first.use(image.id, SlotId("slot-1"))
    # It is killed: nothing is called.
    second = preparer_of(engine, tmp_path, budget=20)
    await second.start()
    assert second.image(image.id).rootfs == image.rootfs
    with pytest.raises(ImageError) as caught:
        await second.delete(image.id)
    assert caught.value.kind is Kind.IN_USE
    assert "slot-1" in caught.value.message
    await ready(second, B)
    await ready(second, C)
    assert image.id in engine.attached
    assert engine.pulls == [(A, None), (B, None), (C, None)]


async def test_a_restarted_agent_asks_the_registry_again(engine: PlayedEngine, tmp_path: Path) -> None:
    await ready(preparer_of(engine, tmp_path), A, tenant="anne", auth=AUTH)
    second = preparer_of(engine, tmp_path)
    await second.start()
    engine.refuse = {(A, None): ImageError(Kind.UNAUTHORIZED, "denied")}
    assert (await failing(second, A, tenant="ben")).kind is Kind.UNAUTHORIZED


async def test_a_state_file_that_cannot_be_read_counts_as_no_use(
    engine: PlayedEngine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    image = await ready(preparer_of(engine, tmp_path), A)
    (tmp_path / "images.json").write_text('{"sha256:')
    second = preparer_of(engine, tmp_path)
    await second.start()
    assert "no image counts as in use" in caplog.text
    await second.delete(image.id)


async def test_the_uses_of_dead_pods_are_dropped(engine: PlayedEngine, tmp_path: Path) -> None:
    clock = Clock()
    preparer = preparer_of(engine, tmp_path, clock=clock, use_grace=60.0)
    image = await ready(preparer, A)
    preparer.use(image.id, SlotId("alive"))
    preparer.use(image.id, SlotId("dead"))
    engine.pods = {"alive"}
    await preparer.housekeep()
    assert set(preparer.ledger.entries[image.id].uses) == {"alive", "dead"}, "it may be about to start"
    clock.now += 60
    engine.pods = None
    await preparer.housekeep()
    assert set(preparer.ledger.entries[image.id].uses) == {"alive", "dead"}, "the engine cannot tell"
    engine.pods = {"alive"}
    for _ in range(2):
        await preparer.housekeep()
    assert set(preparer.ledger.entries[image.id].uses) == {"alive"}


async def test_one_list_without_a_pod_drops_no_use(engine: PlayedEngine, tmp_path: Path) -> None:
    clock = Clock()
    preparer = preparer_of(engine, tmp_path, clock=clock, use_grace=60.0)
    image = await ready(preparer, A)
    preparer.use(image.id, SlotId("slot"))
    clock.now += 60
    for pods in (set[str](), {"slot"}, set[str](), set[str](), {"slot"}, set[str]()):
        engine.pods = pods
        await preparer.housekeep()
        assert set(preparer.ledger.entries[image.id].uses) == {"slot"}


async def test_an_image_whose_files_do_not_go_is_still_there(engine: PlayedEngine, tmp_path: Path) -> None:
    preparer = preparer_of(engine, tmp_path)
    image = await ready(preparer, A)
    engine.stays = ImageError(Kind.FAILED, "busy")
    with pytest.raises(ImageError):
        await preparer.delete(image.id)
    assert preparer.image(image.id) == image
    engine.stays = None
    await preparer.delete(image.id)
    with pytest.raises(ImageError):
        preparer.image(image.id)


async def test_a_stop_cancels_what_runs(engine: PlayedEngine, tmp_path: Path) -> None:
    preparer = preparer_of(engine, tmp_path)
    engine.gate.clear()
    await preparer.prepare(Request(reference=A))
    await until(lambda: engine.pulls)
    await preparer.stop()
    assert not engine.attached


async def test_no_credential_is_on_disk_or_in_a_log(
    engine: PlayedEngine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    preparer = preparer_of(engine, tmp_path)
    image = await ready(preparer, A, tenant="anne", auth=AUTH)
    preparer.use(image.id, SlotId("slot"))
    engine.refuse = {(B, AUTH.password): ImageError(Kind.UNAUTHORIZED, "denied")}
    await failing(preparer, B, tenant="anne", auth=AUTH)
    assert AUTH.password not in caplog.text
    written = (tmp_path / "images.json").read_text()
    assert image.id in written
    assert AUTH.password not in written
    assert AUTH.password not in repr(AUTH)
