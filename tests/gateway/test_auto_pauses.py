"""Pauses at the timeout over E2B's wire, by a gateway whose sidecars answer late, oddly or not at all."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sandlot_gateway.e2b import auto_pause, deadlines, pause_records, pauses

from tests.gateway.auto_pauses import copies, gateway, headers, made, paused, set_timeout, state
from tests.gateway.conftest import Running
from tests.gateway.machine import Machine
from tests.gateway.sidecars import StubSidecar
from tests.waiting import until

NESTED = b'{"deadline_at":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_pause, "_TICK", 0.05)
    monkeypatch.setattr(pauses, "_ASK_AGAIN", (0.05, 0.1))


async def written_unheard(box: Running, sandbox_id: str, sidecar: StubSidecar) -> asyncio.Event:
    """Have a pause write its copy, after which the sidecar does not answer until the event is set."""
    sidecar.hold_layer = asyncio.Event()
    await set_timeout(box, sandbox_id, 0)
    await until(lambda: sidecar.layers_seen)
    held = sidecar.hold_state = asyncio.Event()
    asked = sidecar.states_seen
    sidecar.hold_layer.set()
    await until(lambda: sidecar.states_seen >= asked + 2)  # so the first has had no answer
    assert await copies(box, sandbox_id) == ["DURABLE"]
    return held


@pytest.mark.parametrize(
    "told", ["soon", True, [], 1e300, -1, NESTED, b'"\xff"'], ids=[*"abcde", "nested", "no_text"]
)
async def test_an_odd_answer_of_one_sidecar_keeps_no_other_from_its_pause(
    told: Any, state_dir: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_pause, "_ASK_AGAIN", 0.05)
    async with gateway(state_dir, machine) as box:
        odd, its = await made(box)
        other, _ = await made(box)
        if isinstance(told, bytes):
            its.state_answer = told
        else:
            its.deadline_at = told
        seen = its.states_seen
        await until(lambda: its.states_seen > seen)
        await set_timeout(box, other, 0)
        await paused(box, other)
        assert await state(box, odd) == "running"


async def test_an_unforeseen_failure_is_logged_and_the_watch_goes_on(
    state_dir: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with gateway(state_dir, machine) as box:
        sandbox_id, _ = await made(box)
        with monkeypatch.context() as patched:
            patched.setattr(box.gateway.directory, "live", lambda: [None])
            await until(lambda: "trying again" in caplog.text)
        await set_timeout(box, sandbox_id, 0)
        await paused(box, sandbox_id)


async def test_sidecars_that_hang_have_a_turn_of_a_second(
    state_dir: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_pause, "_ASKED_AT_ONCE", 1)
    monkeypatch.setattr(deadlines, "_ANSWERS_WITHIN", 0.2)
    async with gateway(state_dir, machine) as box:
        hang = asyncio.Event()
        for _ in range(4):
            _, its = await made(box)
            its.hold_state = hang
        due, _ = await made(box)
        await set_timeout(box, due, 0)
        try:
            await paused(box, due)
        finally:
            hang.set()


async def test_a_copy_is_kept_until_the_sandbox_tells_that_it_is_still_due(
    state_dir: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "_ANSWERS_WITHIN", 0.2)
    async with gateway(state_dir, machine) as box:
        sandbox_id, its = await made(box)
        held = await written_unheard(box, sandbox_id, its)
        held.set()
        await paused(box, sandbox_id)
        assert its.layers_seen == 1


@pytest.mark.parametrize("is_deleted", [False, True], ids=["after_the_margin", "by_its_owner"])
async def test_a_sandbox_that_ends_once_its_files_are_written(
    is_deleted: bool, state_dir: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "_ANSWERS_WITHIN", 0.2)
    async with gateway(state_dir, machine) as box:
        sandbox_id, its = await made(box)
        held = await written_unheard(box, sandbox_id, its)
        if is_deleted:
            assert (await box.client.delete(f"/api/v1/sandbox/{sandbox_id}")).status_code == 200
        else:
            its.end("timeout")
        held.set()
        if not is_deleted:
            await paused(box, sandbox_id)
            return

        async def is_gone() -> bool:
            return await copies(box, sandbox_id) == []

        await until(is_gone)
        assert await state(box, sandbox_id) is None


async def test_a_sandbox_whose_time_is_moved_while_its_files_are_written_goes_on(
    state_dir: Path, machine: Machine
) -> None:
    async with gateway(state_dir, machine) as box:
        sandbox_id, its = await made(box)
        its.hold_layer = asyncio.Event()
        await set_timeout(box, sandbox_id, 0)
        await until(lambda: its.layers_seen)
        await set_timeout(box, sandbox_id, 300)
        its.hold_layer.set()

        async def is_forgotten() -> bool:
            return await copies(box, sandbox_id) == []

        await until(is_forgotten)
        assert await state(box, sandbox_id) == "running"


async def test_a_pause_that_fails_is_tried_again(
    state_dir: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_pause, "_TRY_AGAIN", (0.1, 0.2))
    async with gateway(state_dir, machine) as box:
        sandbox_id, its = await made(box)
        its.layer_answer = (500, {"error": "unreadable", "message": "a file cannot be read"})
        await set_timeout(box, sandbox_id, 0)
        await until(lambda: its.layers_seen >= 3)
        assert await state(box, sandbox_id) == "running"
        its.layer_answer = (200, b"archive")
        await paused(box, sandbox_id)


async def test_a_pause_that_cannot_be_is_not_tried_again_until_the_timeout_is_set(
    state_dir: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(auto_pause, "_TRY_AGAIN", (0.01, 0.01))
    async with gateway(state_dir, machine) as box:
        sandbox_id, _ = await made(box)
        with monkeypatch.context() as patched:
            patched.setattr(pause_records, "_MOST", 16)
            await set_timeout(box, sandbox_id, 0)
            await until(lambda: "unless its timeout is set again" in caplog.text)
        other, _ = await made(box)
        await set_timeout(box, other, 0)
        await paused(box, other)
        assert await state(box, sandbox_id) == "running", "another try would pause it by now"
        await set_timeout(box, sandbox_id, 0)
        await paused(box, sandbox_id)


async def test_an_answer_of_before_the_time_was_moved_is_not_kept(
    state_dir: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_pause, "_ASK_AGAIN", 1000.0)
    monkeypatch.setattr(deadlines, "_ANSWERS_WITHIN", 60.0)
    async with gateway(state_dir, machine) as box:
        sandbox_id, its = await made(box)
        held = its.hold_state = asyncio.Event()
        seen = its.states_seen
        await set_timeout(box, sandbox_id, 600)  # so that it is asked now
        await until(lambda: its.states_seen > seen)
        await set_timeout(box, sandbox_id, 0)
        its.hold_state = None
        held.set()
        await paused(box, sandbox_id)


async def test_a_create_that_no_pause_could_keep_is_refused(state_dir: Path, machine: Machine) -> None:
    async with gateway(state_dir, machine) as box:
        body = {"templateID": "base", "envVars": {f"V{n}": "x" * 10_000 for n in range(6)}}
        for is_paused, status in ((True, 400), (False, 201)):
            answer = await box.client.post(
                "/e2b/v2/sandboxes", json={**body, "autoPause": is_paused}, headers=headers()
            )
            assert answer.status_code == status, answer.text
            if is_paused:
                assert answer.json()["message"].startswith("envs: ")
                assert machine.claimed() == []
