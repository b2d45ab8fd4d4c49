"""A deadline that the gateway sets after the claim: earlier, later, of another owner, and across a restart."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.root


async def set_deadline(box, timeout: float, **more: object):
    body = {"sandbox_id": box.claim_body()["sandbox_id"], "timeout": timeout, **more}
    return await box.instance("PUT", "/v1/deadline", json=body)


async def deadline_left(box) -> float:
    state = (await box.call("GET", "/v1/state")).json()
    return state["deadline_at"] - state["claimed_at"]


async def test_a_deadline_moves_in_both_directions_and_ends_the_sandbox(make) -> None:
    box = await make(claim={"timeout": 100.0})
    assert (await set_deadline(box, 1000.0)).status_code == 200
    assert await deadline_left(box) > 990
    assert (await set_deadline(box, 50.0, only_later=True)).status_code == 200
    assert await deadline_left(box) > 990
    await set_deadline(box, 0.1)
    assert (await box.webhooks.wait("ended"))["verdict"] == "deadline"
    assert await box.wait_exit() == 0


async def test_a_claim_without_a_deadline_keeps_none_unless_it_is_set(make) -> None:
    box = await make(claim={"timeout": None})
    answer = await set_deadline(box, 50.0, only_later=True)
    assert answer.json()["deadline_at"] is None
    answer = await set_deadline(box, 50.0)
    assert answer.json()["deadline_at"] is not None


async def test_another_owner_and_a_missing_time_are_refused(make) -> None:
    box = await make(claim={"timeout": 100.0})
    answer = await box.instance("PUT", "/v1/deadline", json={"sandbox_id": "sb-other", "timeout": 1000.0})
    assert (answer.status_code, answer.json()["error"]) == (409, "claimed")
    answer = await box.instance("PUT", "/v1/deadline", json={"sandbox_id": box.claim_body()["sandbox_id"]})
    assert (answer.status_code, answer.json()["field"]) == (400, "timeout")
    assert (await box.call("PUT", "/v1/deadline", json={"timeout": 1})).status_code == 401
    assert await deadline_left(box) == pytest.approx(100)


async def test_a_deadline_survives_a_restart_of_the_sidecar_and_not_the_claim(make) -> None:
    box = await make(claim={"timeout": 100.0})
    await set_deadline(box, 1000.0)
    await box.kill()
    await box.start()
    assert await deadline_left(box) > 990
    answer = await box.instance("POST", "/v1/reset", json={})
    assert answer.json()["deadline_at"] is None
