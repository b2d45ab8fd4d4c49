"""Groups whose instances are lost before all members run: only the members that lost one start again."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from sandlot_gateway.engine import group_members

from tests.gateway.conftest import Running, running
from tests.waiting import until

MEMBERS = [{"docker_image": "host", "cpu_cores": cores} for cores in (2.0, 3.0)]  # no pool has either


def _started(box: Running, cores: float) -> set[str]:
    return {one for one, instance in box.machine.instances.items() if instance.template.cpu == cores}


async def _lose(box: Running, count: int, *, verdict: str) -> set[str]:
    """Lose so many starts of the second member, one after the other."""
    lost: set[str] = set()
    for _ in range(count):
        await until(lambda: _started(box, 3.0) - lost)
        (started,) = _started(box, 3.0) - lost
        box.backend.lose(started, verdict=verdict)
        lost.add(started)
    return lost


async def _asked(box: Running) -> httpx.Response:
    """Ask for the group, as often as the answer is that it waits."""
    body = {"members": MEMBERS, "wait_seconds": 25, "idempotency_key": "k"}
    while True:
        answer = await box.client.post("/api/v1/group", json=body)
        if answer.status_code != 201 or answer.json()["status"] != "PENDING":
            return answer


@pytest.mark.parametrize(
    ("verdict", "losses", "status"),
    [("node_lost", 5, "RUNNING"), ("node_lost", 6, "FAILED"), ("start_failed", 2, "FAILED")],
    ids=["node-lost", "node-lost-too-often", "start-failed"],
)
async def test_a_lost_start_is_made_up_for_within_limits(
    box: Running, verdict: str, losses: int, status: str
) -> None:
    box.machine.hold_ready = asyncio.Event()
    asked = asyncio.create_task(_asked(box))
    await until(lambda: _started(box, 2.0))
    (kept,) = _started(box, 2.0)
    lost = await _lose(box, losses, verdict=verdict)
    if status == "RUNNING":
        await until(lambda: _started(box, 3.0) - lost)
        box.machine.hold_ready.set()
    group = (await asked).json()
    assert (group["status"], group["verdict"]) == (status, None if status == "RUNNING" else verdict), group
    if status == "RUNNING":
        assert len(group["sandboxes"]) == 2
        assert kept in {sidecar.instance_id for sidecar in box.machine.claimed()}
        await box.client.delete(f"/api/v1/group/{group['id']}")
    box.machine.hold_ready.set()
    await until(lambda: box.gateway.directory.total_live == 0)
    await until(lambda: box.machine.claimed() == [])
    assert box.gateway.supply.waiting == 0


async def test_a_ready_instance_that_is_lost_is_made_up_for_before_any_is_claimed(box: Running) -> None:
    box.machine.hold_ready = asyncio.Event()
    asked = asyncio.create_task(_asked(box))
    await until(lambda: _started(box, 2.0) and _started(box, 3.0))
    (lost,), (kept,) = _started(box, 2.0), _started(box, 3.0)
    await box.machine.sidecars[lost].push("ready")
    await until(lambda: box.gateway.supply.waiting == 1)
    box.backend.lose(lost, verdict="node_lost")
    await box.machine.sidecars[kept].push("ready")
    await until(lambda: _started(box, 2.0) - {lost})
    (group_id,) = {one.spec.group.id for one in box.gateway.directory.list(tenant="alpha").sandboxes}
    shown = (await box.client.get(f"/api/v1/group/{group_id}")).json()
    assert (shown["status"], shown["queuePosition"]) == ("PENDING", 1)
    assert box.machine.claimed() == []  # it could still give back all that it has
    box.machine.hold_ready.set()
    group = (await asked).json()
    assert group["status"] == "RUNNING", group
    claimed = {sidecar.instance_id for sidecar in box.machine.claimed()}
    assert claimed == {kept, *_started(box, 2.0) - {lost}}
    assert box.gateway.supply.slots.get(lost) is None


async def test_a_group_that_gets_no_other_instance_gives_up(
    state_dir, machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has may be what the group that collects lacks, also at a single gateway."""
    monkeypatch.setattr(group_members, "PATIENCE", 0.2)
    monkeypatch.setattr(group_members, "_LOOK_EVERY", 0.05)
    machine.room, machine.hold_ready = 2, asyncio.Event()

    def no_more_room(claim: dict[str, Any]) -> None:
        machine.room = 1

    async with running(state_dir, machine, spare_seconds=0.0) as box:
        asked = asyncio.create_task(_asked(box))
        await until(lambda: _started(box, 2.0) and _started(box, 3.0))
        (lost,) = _started(box, 3.0)
        machine.sidecars[lost].before_claim = no_more_room
        machine.sidecars[lost].lose_answers = 100
        machine.hold_ready.set()
        answer = await asked
        assert answer.status_code == 503, answer.text
        assert "1 of 2 sandboxes ran" in answer.json()["detail"]
        assert int(answer.headers["retry-after"]) > 0
        await until(lambda: box.gateway.directory.total_live == 0)
        assert box.gateway.supply.waiting == 0
