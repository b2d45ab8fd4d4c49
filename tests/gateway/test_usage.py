"""The accounting's route: who may read whose usage, what counts, and that a restart changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sandlot_gateway.core.backend import BackendError

from tests.gateway.conftest import OPERATOR, Running, running
from tests.gateway.machine import Machine
from tests.gateway.warm_pool import warmed
from tests.usage import by_run, seconds_of
from tests.waiting import until


async def usage(box: Running, key: str | None = None, **params: Any) -> dict[str, Any]:
    headers = box.as_tenant(key) if key is not None else {}
    answer = await box.client.get("/api/v1/usage", params=params, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def ended(box: Running, **fields: Any) -> dict[str, Any]:
    made = await box.create(**fields)
    assert (await box.client.delete(f"/api/v1/sandbox/{made['id']}")).status_code == 200
    return (await box.client.get(f"/api/v1/sandbox/{made['id']}")).json()


async def test_what_was_asked_for_counts_from_the_claim_to_the_end(box: Running) -> None:
    await warmed(box)  # whose three slots are nobody's
    big = await ended(box, run="big", cpu_cores=4, memory_gb=2, disk_size_gb=10)
    small = [await ended(box, run="small") for _ in range(2)]
    plain = await ended(box)
    rows = by_run(await usage(box))
    assert rows.keys() == {"big", "small", None}
    assert {row["tenant"] for row in rows.values()} == {"alpha"}
    assert [rows[name]["sandboxes"] for name in ("big", "small", None)] == [1, 2, 1]
    lasted = seconds_of(big)
    assert rows["big"]["sandbox_seconds"] == pytest.approx(lasted, abs=0.002)
    assert rows["big"]["core_seconds"] == pytest.approx(4 * lasted, abs=0.002)
    assert rows["big"]["memory_gib_seconds"] == pytest.approx(2 * lasted, abs=0.002)
    assert rows["big"]["disk_gib_seconds"] == pytest.approx(10 * lasted, abs=0.002)
    assert rows["big"]["gpu_seconds"] == 0
    assert rows["small"]["core_seconds"] == pytest.approx(sum(map(seconds_of, small)), abs=0.002)
    assert rows[None]["core_seconds"] == pytest.approx(seconds_of(plain), abs=0.002)


async def test_one_that_runs_counts_up_to_now(box: Running) -> None:
    await box.create(run="on")
    before = by_run(await usage(box))["on"]["core_seconds"]

    async def more() -> bool:
        return by_run(await usage(box))["on"]["core_seconds"] > before

    await until(more)
    assert by_run(await usage(box))["on"]["sandboxes"] == 1


async def test_one_that_was_lost_counts_until_its_loss(box: Running, machine: Machine) -> None:
    made = await box.create(run="lost")
    machine.of_sandbox(made["id"]).end("oom", "too much")
    await until(lambda: not box.gateway.directory.total_live)
    told = (await box.client.get(f"/api/v1/sandbox/{made['id']}")).json()
    rows = by_run(await usage(box))
    assert rows["lost"]["core_seconds"] == pytest.approx(seconds_of(told), abs=0.002)


async def test_one_that_never_ran_counts_as_nothing(box: Running, machine: Machine) -> None:
    machine.fail_launch = [BackendError("registry is down", error_type="IMAGE_PULL_FAILED")]
    assert (await box.create())["status"] == "ERROR"
    await warmed(box)
    for sidecar in machine.sidecars.values():
        sidecar.before_claim = lambda claim: (400, {"error": "bad", "field": "workdir", "message": "no such"})
    refused = await box.client.post("/api/v1/sandbox", json={"docker_image": "host", "workdir": "/x"})
    assert refused.status_code == 422
    assert sum(sidecar.claims_seen for sidecar in machine.sidecars.values()) == 1
    assert (await usage(box))["usage"] == []


async def test_a_key_reads_its_tenants_usage_and_an_operators_that_of_all(box: Running) -> None:
    await ended(box, run="mine")
    beta = box.as_tenant("key-b")
    other = await box.client.post("/api/v1/sandbox", json={"docker_image": "host"}, headers=beta)
    assert other.status_code == 201
    assert {row["tenant"] for row in (await usage(box))["usage"]} == {"alpha"}
    assert {row["tenant"] for row in (await usage(box, "key-b"))["usage"]} == {"beta"}
    everyone = await usage(box, OPERATOR, group_by="tenant")
    assert [(row["tenant"], row["run"], row["sandboxes"]) for row in everyone["usage"]] == [
        ("alpha", None, 1),
        ("beta", None, 1),
    ]
    assert [row["tenant"] for row in (await usage(box, OPERATOR, tenant="beta"))["usage"]] == ["beta"]
    assert (await box.client.get("/api/v1/usage", params={"tenant": "alpha"})).status_code == 200
    forbidden = await box.client.get("/api/v1/usage", params={"tenant": "beta"})
    assert (forbidden.status_code, forbidden.json()["errors"][0]["param"]) == (403, "tenant")
    unknown = await box.client.get("/api/v1/usage", headers={"Authorization": "Bearer nobody"})
    assert unknown.status_code == 401


async def test_times_are_whole_hours_and_groups_of_hours_have_theirs(box: Running) -> None:
    await ended(box, run="now")
    answer = await usage(box, group_by=["hour", "run"])
    assert answer["since"].endswith(":00:00.000000Z")
    assert answer["until"].endswith(":00:00.000000Z")
    for row in answer["usage"]:  # two, if an hour begins meanwhile
        assert (row["tenant"], row["run"], row["time"][13:]) == (None, "now", ":00:00Z")
    by_day = (await usage(box, group_by="day"))["usage"]
    assert {row["time"][10:] for row in by_day} == {"T00:00:00Z"}
    for rows in (answer["usage"], by_day):
        assert sum(row["sandboxes"] for row in rows) == 1
    month = await usage(box, since="2025-10-01T00:00:00+02:00", until="2025-11-01T00:00:00+01:00")
    assert month["usage"] == []
    past = await usage(box, since="2026-01-01T00:30:00Z", until="2026-01-01T01:30:00+00:00")
    assert (past["since"], past["until"], past["usage"]) == (
        "2026-01-01T00:00:00.000000Z",
        "2026-01-01T02:00:00.000000Z",
        [],
    )


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"}, "since"),
        ({"since": "2026-01-02T00:00:00"}, "since"),
        ({"since": "2026-01-01T00:00:00Z", "until": "2026-02-01T02:00:00Z"}, "since"),
        ({"since": "0001-01-01T00:00:00+01:00"}, "since"),
        ({"until": "0001-01-01T00:00:00Z"}, "until"),
        ({"until": "yesterday"}, "until"),
        ({"group_by": "image"}, "group_by.0"),
    ],
)
async def test_a_wrong_field_is_named(box: Running, params: dict[str, str], field: str) -> None:
    answer = await box.client.get("/api/v1/usage", params=params)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["param"] == field


async def test_restarts_change_no_sum(state_dir: Path, machine: Machine) -> None:
    lasted = 0.0
    for round in range(1, 4):
        async with running(state_dir, machine) as box:
            for _ in range(2):
                lasted += seconds_of(await ended(box, run="r"))
            row = by_run(await usage(box))["r"]
            assert row["sandboxes"] == 2 * round
            assert row["core_seconds"] == pytest.approx(lasted, abs=0.01)
    assert len(list((machine.directory / "usage-days").iterdir())) in (1, 2)  # of today; or also of yesterday


async def test_one_that_runs_through_a_restart_counts_once(state_dir: Path, machine: Machine) -> None:
    async with running(state_dir, machine) as box:
        made = await box.create(run="r")
    async with running(state_dir, machine) as box:
        assert by_run(await usage(box))["r"]["sandboxes"] == 1
        await box.client.delete(f"/api/v1/sandbox/{made['id']}")
        told = (await box.client.get(f"/api/v1/sandbox/{made['id']}")).json()
    async with running(state_dir, machine) as box:
        row = by_run(await usage(box))["r"]
        assert row["sandboxes"] == 1
        assert row["core_seconds"] == pytest.approx(seconds_of(told), abs=0.002)
