"""What sidecars tell: ends of every kind, unknown instances, forged and stale messages, recycling."""

from __future__ import annotations

import json
import time

import pytest
from sandlot_contract.reuse import ReusePolicy
from sandlot_contract.template import Template
from sandlot_gateway.core.instances import Instance, PoolSpec, Reuse
from sandlot_gateway.core.slot import ReportOutcome

from tests.gateway.conftest import Running
from tests.gateway.sidecars import StubSidecar, new_instance_id
from tests.gateway.warm_pool import warmed
from tests.waiting import until


@pytest.mark.parametrize(
    ("verdict", "status", "error_type", "reason"),
    [
        ("deadline", "TIMEOUT", "TIMEOUT", "Timeout"),
        ("idle", "TERMINATED", None, "Idle Timeout"),
        ("oom", "ERROR", "OOM_KILLED", "Out Of Memory"),
        ("init_killed", "ERROR", "INIT_KILLED", "Init Killed"),
        ("image_pull", "ERROR", "IMAGE_PULL_FAILED", "Image Pull Failed"),
        ("sidecar_lost", "ERROR", "SIDECAR_LOST", "Sidecar Lost"),
        ("made_up", "ERROR", "MADE_UP", "Made Up"),
    ],
)
async def test_an_end_is_recorded_with_its_cause(box: Running, verdict, status, error_type, reason) -> None:
    made = await box.create()
    sidecar = box.machine.of_sandbox(made["id"])
    sidecar.end(verdict, "because")
    await until(lambda: box.gateway.directory.total_live == 0)
    told = (await box.client.get(f"/api/v1/sandbox/{made['id']}")).json()
    assert (told["status"], told["errorType"], told["terminationReason"]) == (status, error_type, reason)
    assert (told["verdict"], told["verdictMessage"]) == (verdict, "because")
    assert told["terminatedAt"] is not None
    await until(lambda: sidecar.instance_id in box.backend.destroyed)


async def test_the_backends_loss_ends_the_sandbox(box: Running) -> None:
    made = await box.create()
    box.backend.lose(box.machine.of_sandbox(made["id"]).instance_id, message="killed by signal 9")
    told = (await box.client.get(f"/api/v1/sandbox/{made['id']}/error-context")).json()
    assert (told["verdict"], told["errorMessage"]) == ("sidecar_lost", "killed by signal 9")


async def test_only_the_instance_itself_is_believed(box: Running, caplog: pytest.LogCaptureFixture) -> None:
    made = await box.create()
    sidecar = box.machine.of_sandbox(made["id"])
    state = {**sidecar.state(), "event": "ended", "phase": "ended", "verdict": "oom"}
    body = json.dumps(state).encode()
    assert await sidecar.send(body, signature="sha256=" + "0" * 64) == 401
    assert await sidecar.send(body, signature="é") == 401
    other = json.dumps({**state, "instance_id": "i-other"}).encode()
    assert await sidecar.send(other) == 400
    assert await sidecar.send(b"[]") == 400
    assert await sidecar.send(b"\xff") == 400
    told = [record.message for record in caplog.records if "webhook rejected" in record.message]
    assert len(told) == 5, told
    assert "'i-other'" in told[2]
    assert box.gateway.directory.total_live == 1
    assert await sidecar.send(body) == 200
    assert box.gateway.directory.total_live == 0


async def test_an_instance_nobody_knows_is_told_to_go(box: Running) -> None:
    instance_id = new_instance_id()
    stranger = StubSidecar(
        instance_id=instance_id,
        token=box.gateway.tokens.instance(instance_id),
        directory=box.machine.directory,
        webhook=box.backend.webhook,
    )
    assert await stranger.push("ready") == 410
    # The same once the backend knows it: adopted.
    instance = Instance(instance_id, Template(image="host"), stranger.address, stranger.token, pool="p")
    box.machine.instances[instance_id] = instance
    assert await stranger.push("ready") == 200
    assert instance_id in box.gateway.supply.slots.warm
    await stranger.close()


async def test_a_second_owner_of_a_slot_is_counted_and_does_not_get_it(box: Running) -> None:
    made = await box.create()
    sidecar = box.machine.of_sandbox(made["id"])
    sidecar.claim = {**(sidecar.claim or {}), "sandbox_id": "sb-another"}
    assert await sidecar.push("heartbeat") == 200
    assert box.gateway.supply.slots.owner(sidecar.instance_id) == made["id"]
    counted = box.gateway.metrics.registry.get_sample_value("sandlot_webhooks_total", {"event": "two_owners"})
    assert counted == 1


async def test_a_sidecar_that_is_to_go_is_told_how_its_sandbox_has_ended(box: Running) -> None:
    """The gateway may see an eviction before the sidecar hears of it: its commands get that verdict all the same."""
    made = await box.create()
    sidecar = box.machine.of_sandbox(made["id"])
    box.backend.lose(sidecar.instance_id, verdict="evicted")
    await until(lambda: sidecar.instance_id in box.backend.destroyed)
    left = StubSidecar(
        instance_id=sidecar.instance_id,
        token=sidecar.token,
        directory=box.machine.directory,
        webhook=box.backend.webhook,
    )
    left.phase, left.claim = "claimed", sidecar.claim
    assert (await left.push("heartbeat"), left.told) == (410, "evicted")
    await left.close()


async def test_a_heartbeat_brings_back_what_a_lost_webhook_missed(box: Running) -> None:
    await warmed(box)
    lost = box.gateway.supply.shed("warm")
    assert lost is not None
    sidecar = box.machine.sidecars[lost]
    await sidecar.push("heartbeat")
    assert lost in box.gateway.supply.slots.warm
    await sidecar.push("heartbeat")
    assert box.gateway.supply.slots.warm.count("warm") == 3


async def test_how_long_a_ready_one_was_not_known_is_counted(box: Running) -> None:
    await warmed(box)
    instance_id = box.gateway.supply.shed("warm")
    assert instance_id is not None
    state = box.machine.sidecars[instance_id].state()

    def counted(name: str) -> float:
        return box.gateway.metrics.registry.get_sample_value(f"sandlot_ready_seconds_{name}") or 0.0

    count, total = counted("count"), counted("sum")
    sent = json.dumps({"event": "ready", **state, "ready_at": time.time() - 2}).encode()
    assert await box.machine.sidecars[instance_id].send(sent) == 200
    assert instance_id in box.gateway.supply.slots.warm
    assert counted("count") == count + 1
    assert 2 <= counted("sum") - total < 30


async def test_a_claim_made_elsewhere_is_adopted(box: Running) -> None:
    await warmed(box)
    made = await box.create(labels=["mine"])
    sidecar = box.machine.of_sandbox(made["id"])
    one = box.gateway.directory.get(made["id"])
    assert one is not None
    box.gateway.directory.drop(one)
    assert (await box.client.get(f"/api/v1/sandbox/{made['id']}")).status_code == 404
    await sidecar.push("heartbeat")
    again = (await box.client.get(f"/api/v1/sandbox/{made['id']}")).json()
    assert again["labels"] == ["mine"]
    assert again["status"] == "RUNNING"


async def test_another_gateways_claim_is_heard_while_ones_own_is_under_way(box: Running) -> None:
    """Its word came at that very moment and was dropped: the sandbox was not found here for a whole heartbeat."""
    await warmed(box)
    made = await box.create()
    sidecar = box.machine.of_sandbox(made["id"])
    one = box.gateway.directory.get(made["id"])
    assert one is not None
    box.gateway.directory.drop(one)
    instance, slots = box.machine.instances[sidecar.instance_id], box.gateway.supply.slots
    slots.discard(instance.id)
    slots.gone(instance.id)
    slots.report_warm(instance, 1)
    assert slots.holds.claim(slots.grant(instance), "sb-another", tenant="t") is not None
    await sidecar.push("heartbeat")
    again = (await box.client.get(f"/api/v1/sandbox/{made['id']}")).json()
    assert again["status"] == "RUNNING"


async def test_an_old_generation_changes_nothing(box: Running) -> None:
    await warmed(box)
    instance = next(iter(box.gateway.supply.slots.warm))
    sidecar = box.machine.sidecars[instance.id]
    old = json.dumps({"event": "ready", **sidecar.state()}).encode()
    slots = box.gateway.supply.slots
    slots.discard(instance.id)
    slots.gone(instance.id)
    assert slots.report_warm(instance, 2) is ReportOutcome.NEWS
    assert await sidecar.send(old) == 200
    assert instance.id not in box.gateway.supply.slots.warm


async def test_a_deleted_sandboxs_instance_is_used_again(box: Running) -> None:
    reuse = Reuse(ReusePolicy.TENANT)
    await box.backend.set_pool(PoolSpec("one", Template(image="host"), 1, reuse=reuse))
    await until(lambda: box.gateway.supply.slots.warm.count("one") == 1)
    first = await box.create()
    sidecar = box.machine.of_sandbox(first["id"])
    await box.client.delete(f"/api/v1/sandbox/{first['id']}")
    await until(lambda: sidecar.instance_id in box.gateway.supply.slots.warm)
    assert sidecar.generation == 2
    await until(lambda: box.gateway.supply.slots.warm.count("one") == 2)
    owners = {box.machine.of_sandbox((await box.create())["id"]).instance_id for _ in range(2)}
    assert sidecar.instance_id in owners
    assert sidecar.instance_id not in box.backend.destroyed
    assert len(set(sidecar.owners)) == 2


async def test_a_used_instance_is_its_tenants_and_makes_room_for_others(box: Running) -> None:
    box.machine.capacity = 1
    reuse = Reuse(ReusePolicy.TENANT, max_uses=2)
    await box.backend.set_pool(PoolSpec("one", Template(image="host"), 1, reuse=reuse))
    slots = box.gateway.supply.slots
    await until(lambda: slots.warm.count("one") == 1)
    first = await box.create()
    sidecar = box.machine.of_sandbox(first["id"])
    await box.client.delete(f"/api/v1/sandbox/{first['id']}")
    await until(lambda: sidecar.instance_id in slots.warm)
    assert slots.bound_to(sidecar.instance_id) == "alpha"
    body = {"docker_image": "host"}
    made = await box.client.post("/api/v1/sandbox", json=body, headers=box.as_tenant("key-b"))
    assert made.json()["status"] == "RUNNING"
    assert box.machine.of_sandbox(made.json()["id"]) is not sidecar
    await until(lambda: sidecar.instance_id in box.backend.destroyed)


async def test_an_instance_that_is_used_up_ends(box: Running) -> None:
    for reuse in (
        Reuse(ReusePolicy.NEVER),
        Reuse(ReusePolicy.TENANT, max_uses=1),
        Reuse(ReusePolicy.TENANT, max_age=0.0),
    ):
        await box.backend.set_pool(PoolSpec("one", Template(image="host"), 1, reuse=reuse))
        await until(lambda: box.gateway.supply.slots.warm.count("one") == 1)
        made = await box.create()
        sidecar = box.machine.of_sandbox(made["id"])
        await box.client.delete(f"/api/v1/sandbox/{made['id']}")
        await until(lambda sidecar=sidecar: sidecar.instance_id in box.backend.destroyed)
        assert (sidecar.generation, sidecar.phase) == (1, "ended")
