"""Two gateways over one API server, at once or in turn: each serves and ends the other's sandboxes."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from sandlot_gateway.backends.kubernetes.translate import sandbox_body
from sandlot_gateway.engine.open_creates import Part
from sandlot_gateway.sidecars import ClaimAnswer
from sandlot_kube import paths
from sandlot_kube.client import KubeClient

from tests.gateway.kubernetes_world import FIELDS, NEEDS_API_SERVER, TEMPLATE, World
from tests.gateway.sidecars import new_instance_id
from tests.waiting import until

pytestmark = NEEDS_API_SERVER


async def test_two_gateways_race_for_the_same_instances_and_each_has_one_owner(world: World) -> None:
    kubelet = world.kubelet
    kubelet.make_cold = False
    async with AsyncExitStack() as stack:
        gateways = [await stack.enter_async_context(world.gateway(name, backend={})) for name in ("a", "b")]
        for _ in range(4):
            await kubelet.pod(TEMPLATE, pool="default")
        for gateway in gateways:
            await gateway.warm(4)
        answers = await asyncio.gather(
            *(gateways[index % 2].create(wait_seconds=1, name=f"n{index}") for index in range(8))
        )
        made = [answer.json()["id"] for answer in answers]

        async def owners() -> list[dict[str, Any]]:
            told = [await gateways[index % 2].get(sandbox_id) for index, sandbox_id in enumerate(made)]
            assert {sandbox["status"] for sandbox in told} <= {"RUNNING", "PENDING"}
            return found if len(found := [one for one in told if one["status"] == "RUNNING"]) >= 4 else []

        running = await until(owners, pause=0.1)
        assert len(running) == 4
        records = await kubelet.until(
            lambda: len(found := [s for s in kubelet.sandboxes.values() if s.spec.pod_name]) == 4 and found
        )
        assert {record.spec.sandbox_id for record in records} == {sandbox["id"] for sandbox in running}
        assert {record.spec.pod_name for record in records} == set(kubelet.sidecars)
        # Each gateway learns of the other's, and serves it.
        for gateway in gateways:
            await until(
                lambda gateway=gateway: all(
                    (known := gateway.gateway.directory.get(sandbox["id"])) and known.status == "RUNNING"
                    for sandbox in running
                )
            )
            for sandbox in running:
                assert await gateway.run(sandbox["id"], "echo mine") == "mine\n"
        # An end by the one that did not make it is known to the other one.
        await gateways[1].client.delete(f"/api/v1/sandbox/{running[0]['id']}")
        assert (await gateways[0].is_ended(running[0]["id"]))["status"] == "TERMINATED"


async def test_a_sandbox_can_be_used_through_any_gateway_at_once(world: World) -> None:
    kubelet = world.kubelet
    async with world.gateway("a") as one, world.gateway("b") as other:
        await kubelet.pod(TEMPLATE, pool="default")
        for gateway in (one, other):
            await gateway.warm()
        made = await one.made()
        assert await other.run(made["id"], "echo other") == "other\n"
        assert (await other.get(made["id"]))["status"] == "RUNNING"
        assert (await other.client.delete(f"/api/v1/sandbox/{made['id']}")).status_code == 200
        assert (await one.is_ended(made["id"]))["verdict"] == "deleted"
        missing = await other.client.get(f"/api/v1/sandbox/sb-{'0' * 20}")
        assert missing.status_code == 404
        assert not other.gateway.directory._waits._changes


async def test_a_restored_sandbox_can_be_used_through_any_gateway(world: World) -> None:
    """Its sidecar says to one gateway that the files are there: to the one that brought them."""
    directory = world.directory / "checkpoints"
    async with (
        world.gateway("a", checkpoint_dir=directory) as one,
        world.gateway("b", checkpoint_dir=directory) as other,
    ):
        first = await one.made()
        await one.run(
            first["id"], "head -c 20000000 /dev/urandom > /root/big && sha256sum /root/big > /root/sum"
        )
        begun = (await one.client.post(f"/api/v1/sandbox/{first['id']}/checkpoints")).json()

        async def durable() -> bool:
            told = await one.client.get(f"/api/v1/sandbox/checkpoints/{begun['id']}")
            return told.json()["state"] == "DURABLE"

        await until(durable, pause=0.1)
        asked = {**FIELDS, "wait_seconds": 20, "checkpoint_id": begun["id"]}
        del asked["docker_image"], asked["disk_size_gb"]  # the checkpoint's
        made = await one.settled(await one.client.post("/api/v1/sandbox", json=asked))
        assert made["status"] == "RUNNING", made
        assert await other.run(made["id"], "sha256sum -c /root/sum") == "/root/big: OK\n"


async def test_a_deleted_sandbox_runs_nothing_more_at_any_gateway(world: World) -> None:
    kubelet = world.kubelet
    async with world.gateway("a") as one, world.gateway("b") as other:
        for _ in range(5):
            await kubelet.pod(TEMPLATE, pool="default")
            await one.warm()
            made = await one.made()
            assert await other.run(made["id"], "echo on") == "on\n"
            assert (await one.client.delete(f"/api/v1/sandbox/{made['id']}")).status_code == 200
            answer = await other.client.post(
                f"/sbx/{made['id']}/exec", json={"command": "true", "timeout": 9}
            )
            assert answer.status_code >= 400, answer.text
            assert answer.json()["error"] in ("sandbox_ended", "sandbox_not_found"), answer.text


async def test_a_new_gateway_finds_what_an_earlier_one_left(world: World) -> None:
    kubelet = world.kubelet
    async with world.gateway() as gateway:
        for _ in range(2):
            await kubelet.pod(TEMPLATE, pool="default")
        await gateway.warm(2)
        made = await gateway.made(labels=["kept"], run="r")
        await kubelet.until(lambda: made["id"] in kubelet.sandboxes)
    async with world.gateway("another") as gateway:
        assert await gateway.run(made["id"], "echo found") == "found\n"
        told = await gateway.get(made["id"])
        assert (told["labels"], told["run"]) == (["kept"], "r")
        await gateway.warm()
        assert (await gateway.made())["poolHit"] is True


@pytest.mark.parametrize("cold", [False, True])
async def test_a_new_gateway_knows_what_ended_before_it_came(world: World, cold: bool) -> None:
    """As does one that was there and had not heard of the sandbox before its end."""
    kubelet = world.kubelet
    async with world.gateway("a") as one:
        if not cold:
            await kubelet.pod(TEMPLATE, pool="default")
            await one.warm()
        made = await one.made(name="short", labels=["brief"], run="r", secrets={"KEY": "hidden"})
        deleted = await one.client.delete(f"/api/v1/sandbox/{made['id']}")
        assert deleted.status_code == 200, deleted.text
        before = await one.is_ended(made["id"])
        await kubelet.until(lambda: any(each.status.verdict for each in kubelet.sandboxes.values()))
    async with world.gateway("b") as other:
        told = await other.get(made["id"])
        assert (told["status"], told["verdict"]) == ("TERMINATED", "deleted")
        for name in ("name", "labels", "run", "dockerImage", "createdAt", "secrets"):
            assert told[name] == before[name]
        listed = (await other.client.get("/api/v1/sandbox?labels=brief")).json()
        assert [sandbox["id"] for sandbox in listed["sandboxes"]] == [made["id"]]
        gone = await other.client.post(f"/sbx/{made['id']}/exec", json={"command": "true"})
        assert gone.json()["verdict"] == "deleted"


@pytest.mark.parametrize("heard_by", ["its own", "the other"])
async def test_a_short_life_is_told_by_a_gateway_that_never_saw_it(world: World, heard_by: str) -> None:
    """Its sidecar tells one gateway of its end, which may be the one that does not know whose it was."""
    kubelet = world.kubelet
    async with world.gateway("a") as one, world.gateway("b") as other:
        kubelet.webhook = one.webhook if heard_by == "its own" else other.webhook
        for _ in range(5):
            await kubelet.pod(TEMPLATE, pool="default")
            await one.warm()
            await other.warm()
            made = (await one.create(timeout_seconds=2)).json()
            assert made["poolHit"] is True
            for gateway in (other, one):
                told = await gateway.is_ended_somehow(made["id"])
                assert (told["status"], told["verdict"]) == ("TIMEOUT", "deadline"), told
            sandbox_id = made["id"]
            verdict = await kubelet.until(lambda key=sandbox_id: kubelet.sandboxes[key].status.verdict)
            assert verdict == "deadline"


async def test_an_end_before_the_answer_to_its_claim_is_told_alike(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own gateway removed the instance as that of no sandbox, and the other one took that for a delete."""
    kubelet = world.kubelet
    go_on = asyncio.Event()
    async with world.gateway("a") as one, world.gateway("b") as other:
        kubelet.webhook = one.webhook
        sidecars = one.gateway.sidecars
        claim = sidecars.claim

        async def late(*asked: Any) -> ClaimAnswer:
            answer = await claim(*asked)
            await go_on.wait()
            return answer

        monkeypatch.setattr(sidecars, "claim", late)
        made = (await one.create(wait_seconds=0)).json()
        directory = other.gateway.directory
        await until(lambda: (known := directory.get(made["id"])) and known.status == "RUNNING")
        [sidecar] = kubelet.sidecars.values()
        await sidecar.ask_end("deadline")
        before = await one.is_ended(made["id"])
        there = await other.is_ended(made["id"])
        go_on.set()
        await until(lambda: not one.gateway.lifecycle.creates.those(Part.BRINGS_UP))
        for told in (before, there, await one.get(made["id"])):
            assert (told["status"], told["verdict"]) == ("TIMEOUT", "deadline"), told
        record = await kubelet.until(
            lambda: (found := kubelet.sandboxes[sidecar.instance_id]).status.verdict and found
        )
        assert record.status.verdict == "deadline"
        assert made["id"] in (record.spec.sandbox_id, record.status.sandbox_id)


async def test_what_another_gateway_has_started_for_its_own_create_is_left_to_it_for_a_while(
    world: World,
) -> None:
    kubelet = world.kubelet
    async with world.gateway(backend={"claimed_within": 8.0}) as gateway:
        instance = new_instance_id()
        body = sandbox_body(
            instance,
            {"template": TEMPLATE, "state": "Started", "madeFor": "sb-of-another", "tenant": "alpha"},
        )
        client = KubeClient(world.server.access(namespace=world.namespace))
        try:
            await client.request("POST", paths.sandboxes(world.namespace), body=body)
        finally:
            await client.close()
        sidecar = await until(lambda: kubelet.sidecars.get(instance))
        backend = gateway.gateway.backend
        await until(
            lambda: backend._records.recorded.is_made_for_one(instance) and backend._instances.get(instance)
        )
        told = await gateway.client.post(gateway.webhook, **sidecar.word("ready", phase="warm"))
        assert told.status_code == 200, told.text
        assert len(gateway.gateway.supply.slots.warm) == 0
        await gateway.warm()  # that gateway seems to be gone


async def test_an_idempotency_key_holds_at_every_gateway_and_after_the_end_of_the_first(world: World) -> None:
    kubelet = world.kubelet
    async with world.gateway("a") as first:
        for _ in range(3):
            await kubelet.pod(TEMPLATE, pool="default")
        await first.warm(3)
        made = await first.made(idempotency_key="one")
        # Its sidecar tells the key to whoever learns of the sandbox by its record.
        async with world.gateway("b") as second:
            await until(lambda: second.gateway.directory.get(made["id"]))
            again = await second.made(idempotency_key="one")
            assert (again["id"], again["poolHit"]) == (made["id"], True)
            assert (await second.made(idempotency_key="two"))["id"] != made["id"]
            later = await first.made(idempotency_key="three")
            await until(lambda: second.gateway.directory.get(later["id"]))
            assert (await second.made(idempotency_key="three"))["id"] == later["id"]
    # One that starts later reads it from the sidecars before it takes requests.
    async with world.gateway("c") as third:
        assert (await third.made(idempotency_key="one"))["id"] == made["id"]
    records = world.server.call("GET", paths.sandboxes(world.namespace))["items"]
    owners = [one["spec"]["sandboxId"] for one in records if "verdict" not in one.get("status", {})]
    assert len(owners) == len(set(owners)) == 3
