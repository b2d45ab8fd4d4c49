"""How many pauses at the timeout are written at once, of all tenants and of one, while some take long."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sandlot_gateway.e2b import auto_pause

from tests.gateway.auto_pauses import copies, gateway, made, paused, set_timeout
from tests.gateway.conftest import KEY, Running
from tests.gateway.machine import Machine
from tests.gateway.sidecars import StubSidecar
from tests.waiting import until

KEYS = (KEY, "key-b", "key-small")  # of three tenants


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_pause, "_TICK", 0.05)
    monkeypatch.setattr(auto_pause, "_ASK_AGAIN", 0.05)


async def held_and_due(box: Running, boxes: list[tuple[str, str, StubSidecar]]) -> asyncio.Event:
    """Make sandboxes due, with their tenants' keys; their files come once the event is set.

    On return two are being written, and all are known to be due.
    """
    held = asyncio.Event()
    _, another = await made(box)
    for key, sandbox_id, its in boxes:
        its.hold_layer = held
        await set_timeout(box, sandbox_id, 0, key)
    await until(lambda: sum(its.layers_seen for _, _, its in boxes) >= 2)
    asked = another.states_seen
    await until(lambda: another.states_seen >= asked + 5)
    return held


async def begun(box: Running, boxes: list[tuple[str, str, StubSidecar]]) -> int:
    found = [each for key, sandbox_id, _ in boxes for each in await copies(box, sandbox_id, key)]
    assert set(found) == {"PENDING"}
    return len(found)


async def test_so_many_pauses_are_written_at_once(
    state_dir: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_pause, "_WRITTEN_AT_ONCE", 2)
    async with gateway(state_dir, machine) as box:
        boxes = [(key, *await made(box, key)) for key in KEYS]
        held = await held_and_due(box, boxes)
        assert await begun(box, boxes) == 2
        held.set()
        for key, sandbox_id, _ in boxes:
            await paused(box, sandbox_id, key)


async def test_half_of_the_pauses_written_at_once_are_one_tenants_at_most(
    state_dir: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_pause, "_WRITTEN_AT_ONCE", 4)
    async with gateway(state_dir, machine) as box:
        boxes = [(KEY, *await made(box)) for _ in range(5)]
        held = await held_and_due(box, boxes)
        assert await begun(box, boxes) == 2
        other, _ = await made(box, KEYS[1])
        await set_timeout(box, other, 0, KEYS[1])
        await paused(box, other, KEYS[1])
        held.set()
        for _, sandbox_id, _ in boxes:
            await paused(box, sandbox_id)


async def test_a_pause_that_takes_long_goes_on_without_its_slot(
    state_dir: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_pause, "_WRITTEN_AT_ONCE", 2)
    monkeypatch.setattr(auto_pause, "_SLOT_KEPT", 0.2)
    async with gateway(state_dir, machine) as box:
        slow = [(key, *await made(box, key)) for key in KEYS[:2]]
        held = await held_and_due(box, slow)
        for _ in range(3):  # a slot given back twice would let in more and more
            other, _ = await made(box, KEYS[2])
            await set_timeout(box, other, 0, KEYS[2])
            await paused(box, other, KEYS[2])
        assert await begun(box, slow) == 2
        held.set()
        for key, sandbox_id, its in slow:
            await paused(box, sandbox_id, key)
            assert its.layers_seen == 1
