"""Creates that name secrets which cannot be read for a while, or that wait for them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sandlot_gateway.engine.pending import PendingStore
from sandlot_gateway.sealing import Seal

from tests.gateway.conftest import API, running
from tests.gateway.kept_secrets import REFS, VALUE, Kept, claimed, kept, refused
from tests.gateway.machine import Machine
from tests.gateway.warm_pool import warmed
from tests.waiting import until

__all__ = ["kept"]


async def test_secrets_that_cannot_be_read_are_no_fault_of_the_caller(
    state_dir: Path, machine: Machine, kept: Kept
) -> None:
    async with running(state_dir, machine) as box:
        await warmed(box)
        away = kept.root.rename(kept.root.with_name("away"))
        answer = await refused(box)
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json()["errors"] == []
        assert str(kept.root.parent) not in answer.text
        assert len(box.gateway.supply.slots.warm) == 3
        away.rename(kept.root)
        assert claimed(machine, (await box.create(secret_refs=REFS))["id"])["secrets"] == {"TOKEN": VALUE}


async def test_a_pending_create_keeps_the_names_and_reads_the_values_again(
    state_dir: Path, machine: Machine, kept: Kept
) -> None:
    machine.hold_ready = asyncio.Event()
    async with running(state_dir, machine, spare_seconds=0.0) as box:
        made = await box.create(wait_seconds=0.05, secret_refs=REFS, secrets={"OWN": "own"})
        assert made["status"] == "PENDING"
        seal = Seal(box.gateway.tokens.pending_keys)
        [(sandbox, secrets)] = PendingStore(state_dir / "pending", seal=seal).load()
        assert (sandbox.id, secrets) == (made["id"], {"OWN": "own"})
    for sidecar in list(machine.sidecars.values()):
        await sidecar.close()
    machine.sidecars.clear()
    machine.instances.clear()
    machine.hold_ready = None
    kept.put("rotated")
    away = kept.root.rename(kept.root.with_name("away"))
    async with running(state_dir, machine) as box:
        # Its caller has the id: it waits for the secrets, without a slot.
        waiting = box.gateway.directory.get(made["id"])
        assert waiting is not None
        await until(lambda: box.gateway.lifecycle.bringup.unread(made["id"]))
        assert box.gateway.supply.waiting == 0
        shown = (await box.client.get(f"{API}/sandbox/{made['id']}")).json()
        assert (shown["status"], "cannot be read" in shown["pendingMessage"]) == ("PENDING", True)
        away.rename(kept.root)
        await until(lambda: waiting.status == "RUNNING")
        assert claimed(machine, made["id"])["secrets"] == {"OWN": "own", "TOKEN": "rotated"}


async def test_one_that_is_deleted_while_it_waits_for_secrets_stays_deleted(
    state_dir: Path, machine: Machine, kept: Kept
) -> None:
    machine.hold_ready = asyncio.Event()
    async with running(state_dir, machine, spare_seconds=0.0) as box:
        made = await box.create(wait_seconds=0.05, secret_refs=REFS)
    for sidecar in list(machine.sidecars.values()):
        await sidecar.close()
    machine.sidecars.clear()
    machine.instances.clear()
    machine.hold_ready = None
    kept.root.rename(kept.root.with_name("away"))
    async with running(state_dir, machine) as box:
        await until(lambda: box.gateway.lifecycle.bringup.unread(made["id"]))
        path = f"{API}/sandbox/{made['id']}"
        assert (await box.client.delete(path)).status_code == 200
        await until(lambda: not box.gateway.lifecycle.creates.brings_up(made["id"]))
        assert (await box.client.get(path)).json()["verdict"] == "deleted"
        assert machine.claimed() == []


async def test_one_that_will_not_wait_is_refused_as_any_other(
    state_dir: Path, machine: Machine, kept: Kept
) -> None:
    """It has no place in the queue while its secrets are read: without one it must not be PENDING."""
    machine.hold_ready = asyncio.Event()
    body = {"docker_image": "host", "secret_refs": REFS, "wait_seconds": 0}
    async with running(state_dir, machine, max_waiting=1, max_starts=1) as box:
        waiting = asyncio.create_task(box.create())
        await until(lambda: box.gateway.supply.waiting == 1)
        full = await box.client.post(f"{API}/sandbox", json=body)
        assert (full.status_code, full.headers["x-sandlot-queue-position"]) == (503, "2"), full.text
        machine.hold_ready.set()
        await waiting
        kept.root.rename(kept.root.with_name("away"))
        unread = await box.client.post(f"{API}/sandbox", json=body)
        assert (unread.status_code, "cannot be read" in unread.text) == (503, True), unread.text
