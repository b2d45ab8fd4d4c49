"""Leases of runs over the control routes: who holds one, which creates it admits, and what ends with it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.conftest import API, Running, running
from tests.gateway.machine import Machine
from tests.waiting import until

RUNS = f"{API}/runs"


async def begin(box: Running, run_id: str, holder: str = "one", **fields: Any) -> httpx.Response:
    body = {"holder": holder, "grace_seconds": 15, **fields}
    return await box.client.put(f"{RUNS}/{run_id}", json=body)


async def renew(box: Running, run_id: str, epoch: int) -> httpx.Response:
    return await box.client.post(f"{RUNS}/{run_id}/renew", json={"epoch": epoch})


async def create(box: Running, run_id: str, **fields: Any) -> httpx.Response:
    body = {"docker_image": "host", "run_id": run_id, **fields}
    return await box.client.post(f"{API}/sandbox", json=body)


async def verdict(box: Running, sandbox_id: str) -> str | None:
    return (await box.client.get(f"{API}/sandbox/{sandbox_id}")).json()["verdict"]


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json().get("error", "")


async def test_a_silent_run_ends_its_sandboxes_and_admits_no_more(box: Running) -> None:
    begun = (await begin(box, "r1", grace_seconds=8, metadata={"host": "n1"}, name="grpo")).json()
    assert (begun["state"], begun["metadata"], begun["name"]) == ("ACTIVE", {"host": "n1"}, "grpo")
    made = (await create(box, "r1")).json()
    assert (made["run"], made["runEpoch"]) == ("r1", begun["epoch"])
    other = await box.create(run="r1")  # names the run, and does not end with it
    lively = (await begin(box, "r1-lively", grace_seconds=8)).json()
    kept = (await create(box, "r1-lively")).json()

    async def lost() -> str | None:
        assert (await renew(box, "r1-lively", lively["epoch"])).status_code == 200
        return await verdict(box, made["id"])

    await until(lost, pause=0.5)
    assert await verdict(box, kept["id"]) is None  # of the same age and grace
    ended = (await box.client.get(f"{API}/sandbox/{made['id']}")).json()
    assert (ended["verdict"], ended["status"], ended["errorType"]) == ("run_lost", "ERROR", "RUN_LOST")
    assert await verdict(box, other["id"]) is None
    shown = (await box.client.get(f"{RUNS}/r1")).json()
    assert (shown["state"], shown["verdicts"]) == ("LOST", {"run_lost": 1})
    assert shown["sandboxes"] == {"ERROR": 1, "RUNNING": 1}
    assert code(await renew(box, "r1", begun["epoch"])) == (409, "run_lost")
    refused = await create(box, "r1")
    assert code(refused) == (409, "run_lost")
    assert "run_id: run r1 is lost" in refused.json()["detail"]
    again = (await begin(box, "r1", "two")).json()
    assert (again["state"], again["epoch"] > begun["epoch"]) == ("ACTIVE", True)
    assert (await create(box, "r1", run_epoch=again["epoch"])).status_code == 201


async def test_the_end_of_a_run_deletes_its_sandboxes(box: Running) -> None:
    epoch = (await begin(box, "r2")).json()["epoch"]
    made = await create(box, "r2", idempotency_key="r2")
    assert made.status_code == 201
    ended = await box.client.delete(f"{RUNS}/r2", params={"epoch": epoch})
    assert (ended.json()["state"], ended.json()["verdicts"]) == ("ENDED", {"deleted": 1})
    assert code(await create(box, "r2")) == (409, "run_ended")
    retried = (await create(box, "r2", idempotency_key="r2")).json()
    assert (retried["id"], retried["verdict"]) == (made.json()["id"], "deleted")
    assert (await box.client.delete(f"{RUNS}/r2")).json()["state"] == "ENDED"


async def test_another_holder_takes_it_over_and_the_old_one_is_told(box: Running) -> None:
    first = (await begin(box, "r3", grace_seconds=600)).json()
    assert (await begin(box, "r3")).json()["epoch"] == first["epoch"]  # a retry
    held = await begin(box, "r3", "two")
    assert code(held) == (409, "run_held")
    assert "has a holder, one," in held.json()["detail"]
    kept = (await create(box, "r3")).json()
    second = (await begin(box, "r3", "two", take_over=True)).json()
    for answer in (
        await renew(box, "r3", first["epoch"]),
        await create(box, "r3", run_epoch=first["epoch"]),
        await box.client.delete(f"{RUNS}/r3", params={"epoch": first["epoch"]}),
    ):
        assert code(answer) == (409, "run_taken_over"), answer.text
    assert (await renew(box, "r3", second["epoch"])).status_code == 200
    assert await verdict(box, kept["id"]) is None
    third = (await begin(box, "r3", "three", take_over=True, end_sandboxes=True)).json()
    assert await verdict(box, kept["id"]) == "run_lost"
    assert (await create(box, "r3", run_epoch=third["epoch"])).status_code == 201


async def test_a_restarted_gateway_gives_each_run_its_whole_grace(state_dir: Path, machine: Machine) -> None:
    async with running(state_dir, machine) as box:
        epoch = (await begin(box, "r4")).json()["epoch"]
        made = (await create(box, "r4")).json()
    file = machine.directory / "runs.json"
    # As if it had been down for longer than the grace.
    file.write_text(re.sub(r'"renewed_at":\d+', '"renewed_at":1', file.read_text()))
    async with running(state_dir, machine) as box:
        assert (await renew(box, "r4", epoch)).status_code == 200
        assert await verdict(box, made["id"]) is None


async def test_a_run_is_its_tenants(box: Running) -> None:
    epoch = (await begin(box, "r5")).json()["epoch"]
    headers = box.as_tenant("key-b")
    path = f"{RUNS}/r5"
    for answer in (
        await box.client.get(path, headers=headers),
        await box.client.delete(path, headers=headers),
        await box.client.post(f"{path}/renew", json={"epoch": epoch}, headers=headers),
        await box.client.post(
            f"{API}/sandbox", json={"docker_image": "host", "run_id": "r5"}, headers=headers
        ),
    ):
        assert code(answer) == (404, "run_unknown"), answer.text
    assert (await box.client.get(RUNS, headers=headers)).json() == {"runs": []}
    body = {"holder": "b", "grace_seconds": 15}
    assert (await box.client.put(path, json=body, headers=headers)).json()["holder"] == "b"
    assert (await box.client.get(path)).json()["holder"] == "one"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"run_id": "with blank"}, "run_id"),
        ({"run_id": "a", "run": "b"}, "run"),
        ({"run_epoch": 1}, "run_epoch"),
    ],
)
async def test_a_create_says_which_field_of_its_run_is_wrong(
    box: Running, fields: dict[str, Any], param: str
) -> None:
    answer = await box.client.post(f"{API}/sandbox", json={"docker_image": "host", **fields})
    assert (answer.status_code, answer.json()["errors"][0]["param"]) == (422, param)
