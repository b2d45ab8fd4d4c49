"""A sandbox that another gateway may have: every route says so, and none that it does not exist."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sandlot_contract.new_ids import new_sandbox_id

from tests.gateway.conftest import API, Running, running
from tests.gateway.machine import Machine, StubBackend

JOB = "/sandbox/background-jobs/status:batchGet"
# Routes of one sandbox, and those that name several in the body.
OF_ONE = [
    ("GET", ""),
    ("DELETE", ""),
    ("POST", "/auth"),
    ("GET", "/error-context"),
    ("GET", "/logs"),
    ("GET", "/checkpoints"),
    ("DELETE", "/checkpoints"),
    ("POST", "/checkpoints"),
]


@pytest.fixture
async def box(state_dir: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    """One of several gateways."""
    monkeypatch.setattr(StubBackend, "single_gateway", False)
    monkeypatch.setattr("sandlot_gateway.parts._PATIENCE", 0.02)
    async with running(state_dir, machine, checkpoint_dir=state_dir / "checkpoints") as found:
        yield found


async def ask(
    box: Running, method: str, path: str, document: dict[str, Any] | None = None
) -> tuple[int, Any]:
    answer = await box.client.request(method, f"{API}{path}", json=document)
    return answer.status_code, answer


@pytest.mark.parametrize(("method", "rest"), OF_ONE)
async def test_a_new_one_is_not_known_yet_and_an_old_one_is_not_found(
    box: Running, method: str, rest: str
) -> None:
    status, answer = await ask(box, method, f"/sandbox/{new_sandbox_id(time.time())}{rest}")
    assert (status, int(answer.headers["retry-after"])) == (503, 1), answer.text
    status, _ = await ask(box, method, f"/sandbox/{new_sandbox_id(time.time() - 600)}{rest}")
    assert status == 404


@pytest.mark.parametrize("route", ["status", "jobs", "delete"])
async def test_no_answer_about_several_denies_a_new_one(box: Running, route: str) -> None:
    known = (await box.create())["id"]

    async def ask_for(*ids: str) -> tuple[int, Any]:
        if route == "status":
            return await ask(box, "POST", "/sandbox/status:batchGet", {"sandbox_ids": ids})
        if route == "jobs":
            jobs = [{"sandbox_id": one, "job_id": "a"} for one in ids]
            return await ask(box, "POST", JOB, {"jobs": jobs})
        return await ask(box, "DELETE", "/sandbox", {"sandbox_ids": ids})

    new, old = new_sandbox_id(time.time()), new_sandbox_id(time.time() - 600)
    status, answer = await ask_for(new, old)
    assert (status, int(answer.headers["retry-after"])) == (503, 1), "none of them is known"
    status, answer = await ask_for(known, old)
    assert status == 200
    unknown = answer.json()["failed" if route == "delete" else "errors"]
    assert old in [one["sandbox_id"] for one in unknown]


@pytest.mark.parametrize("made", ["new", "doubted"])
async def test_one_that_may_exist_does_not_stand_in_the_way_of_those_that_do(box: Running, made: str) -> None:
    known = (await box.create())["id"]
    late = new_sandbox_id(time.time() - (0 if made == "new" else 600))
    if made == "doubted":
        box.backend.doubted.add(late)

    status, answer = await ask(box, "POST", "/sandbox/status:batchGet", {"sandbox_ids": [known, late]})
    assert status == 200, answer.text
    told = {one["sandbox_id"]: one["status"] for one in answer.json()["statuses"]}
    assert told == {known: "RUNNING", late: "PENDING"}, "Prime's client would give up at an error"

    jobs = [{"sandbox_id": one, "job_id": "a"} for one in (known, late)]
    status, answer = await ask(box, "POST", JOB, {"jobs": jobs})
    assert status == 200, answer.text
    assert {one["sandbox_id"]: one["completed"] for one in answer.json()["statuses"]}[late] is False

    status, answer = await ask(box, "DELETE", "/sandbox", {"sandbox_ids": [known, late]})
    assert status == 200, answer.text
    [failed] = answer.json()["failed"]
    assert (answer.json()["succeeded"], failed["sandbox_id"]) == ([known], late)
    assert "try again" in failed["error"]
    assert (await box.client.get(f"{API}/sandbox/{known}")).json()["status"] != "RUNNING"


async def test_a_gateway_tells_the_others_that_it_brings_one_up(box: Running, machine: Machine) -> None:
    """Its record may be late, when the API server is away."""
    machine.hold_ready = asyncio.Event()
    made = await box.create(wait_seconds=0)
    headers = {"Authorization": f"Bearer {box.gateway.tokens.peer()}"}
    answer = await box.client.get(f"/internal/sandboxes/{made['id']}/instance", headers=headers)
    assert (made["status"], answer.status_code, answer.json()) == ("PENDING", 200, {"pending": True})


@pytest.mark.parametrize(("method", "rest"), OF_ONE)
async def test_an_older_one_that_not_every_gateway_denies_is_not_known_yet(
    box: Running, method: str, rest: str
) -> None:
    """Its create waited for more than a minute, say, and the gateway that made it is slow to answer."""
    sandbox_id = new_sandbox_id(time.time() - 600)
    box.backend.doubted.add(sandbox_id)
    status, answer = await ask(box, method, f"/sandbox/{sandbox_id}{rest}")
    assert (status, int(answer.headers["retry-after"])) == (503, 1), answer.text
    box.backend.doubted.clear()
    status, _ = await ask(box, method, f"/sandbox/{sandbox_id}{rest}")
    assert status == 404


async def test_no_command_is_told_that_it_does_not_exist(box: Running) -> None:
    sandbox_id = new_sandbox_id(time.time() - 600)
    box.backend.doubted.add(sandbox_id)
    path, body = f"/sbx/{sandbox_id}/exec", {"command": "true"}
    answer = await box.client.post(path, json=body)
    assert (answer.status_code, answer.json()["error"]) == (503, "sandbox_not_known_yet")
    box.backend.doubted.clear()
    answer = await box.client.post(path, json=body)
    assert (answer.status_code, answer.json()["error"]) == (502, "sandbox_not_found")
