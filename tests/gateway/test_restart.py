"""A gateway that comes back finds everything again: sandboxes, their ends, and creates that were answered PENDING."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.gateway.conftest import running
from tests.gateway.machine import Machine
from tests.gateway.warm_pool import warmed
from tests.waiting import until


async def test_everything_is_found_again(state_dir: Path, machine: Machine) -> None:
    async with running(state_dir, machine) as box:
        await warmed(box)
        alive = await box.create(name="alive", labels=["l"], secrets={"S": "x"}, idempotency_key="k")
        cold = await box.create(name="cold", cpu_cores=2.0)
        ended = await box.create(name="ended")
        machine.of_sandbox(ended["id"]).end("oom", "too much")
        await until(lambda: box.gateway.directory.total_live == 2)
        exposed = await box.client.post(f"/api/v1/sandbox/{alive['id']}/expose", json={"port": 80})
        await until(lambda: box.gateway.supply.slots.warm.count("warm") == 3)
    async with running(state_dir, machine) as box:
        again = (await box.client.get(f"/api/v1/sandbox/{alive['id']}")).json()
        changed = {"updatedAt", "gatewayAuth", "timings"}
        assert {k: v for k, v in again.items() if k not in changed} == {
            k: v for k, v in alive.items() if k not in changed
        }
        assert (await box.create(idempotency_key="k"))["id"] == alive["id"]
        names = [one["name"] for one in (await box.client.get("/api/v1/sandbox")).json()["sandboxes"]]
        assert names == ["ended", "cold", "alive"]
        told = (await box.client.get(f"/api/v1/sandbox/{ended['id']}")).json()
        assert (told["status"], told["verdict"], told["errorType"]) == ("ERROR", "oom", "OOM_KILLED")
        assert box.gateway.supply.slots.warm.count("warm") == 3
        # A token given out before the restart, and one made after it.
        for auth in (alive["gatewayAuth"], cold["gatewayAuth"]):
            url = f"{box.url}/sbx/{auth['job_id']}/exec"
            headers = {"Authorization": f"Bearer {auth['token']}"}
            answer = await box.client.post(url, json={"command": "still"}, headers=headers)
            assert answer.json()["stdout"] == "still"
        listed = (await box.client.get("/api/v1/sandbox/expose/all")).json()["exposures"]
        assert [one["exposure_id"] for one in listed] == [exposed.json()["exposure_id"]]
        await box.client.delete(f"/api/v1/sandbox/{alive['id']}")
        await until(lambda: len(machine.claimed()) == 1)


async def test_one_whose_sidecar_died_meanwhile_has_a_verdict(state_dir: Path, machine: Machine) -> None:
    async with running(state_dir, machine) as box:
        made = await box.create()
        sidecar = machine.of_sandbox(made["id"])
    del machine.sidecars[sidecar.instance_id]
    await sidecar.close()
    for _ in range(2):
        async with running(state_dir, machine) as box:
            told = (await box.client.get(f"/api/v1/sandbox/{made['id']}")).json()
            assert (told["status"], told["verdict"]) == ("ERROR", "sidecar_lost")
            gone = await box.client.post(f"/sbx/{made['id']}/exec", json={"command": "x"})
            assert (gone.status_code, gone.json()["verdict"]) == (502, "sidecar_lost")


async def test_one_that_was_deleted_while_its_sidecar_lives_on_is_ended(
    state_dir: Path, machine: Machine
) -> None:
    async with running(state_dir, machine) as box:
        made = await box.create()
        one = box.gateway.directory.get(made["id"])
        assert one is not None
        # As if the gateway had died between the record of the end and the cleanup.
        box.gateway.directory.end(one, verdict="deleted")
    assert len(machine.claimed()) == 1
    async with running(state_dir, machine) as box:
        await until(lambda: machine.claimed() == [])
        assert (await box.client.get(f"/api/v1/sandbox/{made['id']}")).json()["verdict"] == "deleted"


async def test_a_pending_create_goes_on_after_the_restart(state_dir: Path, machine: Machine) -> None:
    machine.hold_ready = asyncio.Event()
    async with running(state_dir, machine, spare_seconds=0.0) as box:
        made = await box.create(wait_seconds=0.05, secrets={"S": "hidden"}, idempotency_key="k")
        assert made["status"] == "PENDING"
        (kept,) = (state_dir / "pending").iterdir()
        assert kept.stat().st_mode & 0o077 == 0
    for sidecar in list(machine.sidecars.values()):
        await sidecar.close()
    machine.sidecars.clear()
    machine.instances.clear()
    machine.hold_ready = None
    async with running(state_dir, machine) as box:
        assert (await box.create(idempotency_key="k"))["id"] == made["id"]
        await until(lambda: machine.claimed())
        claim = machine.of_sandbox(made["id"]).claim
        assert claim is not None
        assert claim["secrets"] == {"S": "hidden"}
        await until(lambda: list((state_dir / "pending").iterdir()) == [])


async def test_a_question_of_keys_is_told_of_the_recovery_at_once(
    state_dir: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its silence told the gateway that asked nothing."""
    monkeypatch.setattr("sandlot_gateway.edge._RECOVERY_WAIT", 3600.0)
    async with running(state_dir, machine) as box:
        box.gateway._recovered.clear()
        told = await box.client.get("/internal/keys")
        assert (told.status_code, told.json()["starting"]) == (503, True)
        box.gateway._recovered.set()
        assert (await box.client.get("/internal/keys")).status_code != 503


async def test_requests_wait_for_the_recovery(state_dir: Path, machine: Machine) -> None:
    async with running(state_dir, machine) as box:
        made = await box.create()
        box.gateway._recovered.clear()
        asked = asyncio.create_task(box.client.post(f"/sbx/{made['id']}/exec", json={"command": "x"}))
        assert (await box.client.get("/healthz")).status_code == 200
        assert (await box.client.get("/readyz")).status_code == 503
        assert not asked.done()
        box.gateway._recovered.set()
        assert (await asked).status_code == 200
