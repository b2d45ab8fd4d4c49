"""Deadlines over E2B's wire, of sandboxes whose sidecar is of an earlier build, or does not answer."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest
from sandlot_gateway.e2b import deadlines

from tests.gateway.conftest import KEY, running

OPTIONS = {"e2b": True, "e2b_templates": ["base=host"]}
HEADERS = {"X-API-Key": KEY}


async def created(box: Any, *, timeout: int) -> str:
    answer = await box.client.post(
        "/e2b/v2/sandboxes", json={"templateID": "base", "timeout": timeout}, headers=HEADERS
    )
    assert answer.status_code == 201, answer.text
    return answer.json()["sandboxID"]


async def test_a_connect_succeeds_where_the_deadline_that_stays_is_late_enough(state_dir, machine) -> None:
    async with running(state_dir, machine, **OPTIONS) as box:
        sandbox_id = await created(box, timeout=300)

        async def connected(seconds: int) -> int:
            path = f"/e2b/v2/sandboxes/{sandbox_id}/connect"
            return (await box.client.post(path, json={"timeout": seconds}, headers=HEADERS)).status_code

        assert (await connected(60), await connected(3000)) == (200, 501)
        path = f"/e2b/sandboxes/{sandbox_id}/timeout"
        answer = await box.client.post(path, json={"timeout": 60}, headers=HEADERS)
        assert (answer.status_code, "an earlier build" in answer.json()["message"]) == (501, True)


async def test_a_list_does_not_wait_for_each_lost_sandbox(
    state_dir, machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "_PATIENCE", 5.0)
    monkeypatch.setattr(deadlines, "_ANSWERS_WITHIN", 100.0)
    async with running(state_dir, machine, **OPTIONS) as box:
        box.gateway.sidecars._call_timeout = 100.0
        lost = await created(box, timeout=300)
        other = await created(box, timeout=300)
        held = machine.of_sandbox(lost)
        machine.of_sandbox(other).deadline_at = 4e9
        held.hold_state = asyncio.Event()
        try:
            async with asyncio.timeout(50):
                answer = await box.client.get("/e2b/v2/sandboxes", headers=HEADERS)
        finally:
            held.hold_state.set()
        ends = {each["sandboxID"]: each for each in answer.json()}
        assert ends[other]["endAt"].startswith("2096-")
        begin, end = (datetime.fromisoformat(ends[lost][name]) for name in ("startedAt", "endAt"))
        assert (end - begin).total_seconds() == pytest.approx(300)
