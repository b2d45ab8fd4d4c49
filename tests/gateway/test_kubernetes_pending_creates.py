"""Creates that are answered PENDING, with two gateways over one API server: what one has promised the other one knows."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from sandlot_kube import clock, paths

from tests.gateway.kubernetes_world import NEEDS_API_SERVER, TEMPLATE, Running, World
from tests.waiting import SECONDS, until

pytestmark = NEEDS_API_SERVER

SECRET = "hidden-from-everybody-else"


async def pending(gateway: Running, **fields: Any) -> dict[str, Any]:
    answer = await gateway.create(wait_seconds=0, **fields)
    assert answer.status_code == 201, answer.text
    assert answer.json()["status"] == "PENDING", answer.text
    return answer.json()


async def status_at(gateway: Running, sandbox_id: str, status: str) -> dict[str, Any]:
    def has_it() -> bool:
        sandbox = gateway.gateway.directory.get(sandbox_id)
        return sandbox is not None and sandbox.status == status

    await until(has_it)
    return await gateway.get(sandbox_id)


async def run_once_ready(gateway: Running, sandbox_id: str, command: str) -> str:
    """Each request waits for the sandbox, and is told so when that took too long."""
    async with asyncio.timeout(SECONDS):
        while True:
            body = {"command": command, "timeout": 20}
            answer = await gateway.client.post(f"/sbx/{sandbox_id}/exec", json=body)
            if answer.status_code == 200:
                return answer.json()["stdout"]
            assert answer.json()["error"] == "sandbox_pending", answer.text


async def cold_name(world: World) -> str:
    [name] = await world.kubelet.until(lambda: [name for name in world.kubelet.sandboxes if name[:2] == "i-"])
    return name


async def test_it_is_pending_everywhere_and_a_cold_start_makes_it_run_everywhere(world: World) -> None:
    kubelet = world.kubelet
    kubelet.make_cold = False
    async with world.gateway("a") as one, world.gateway("b") as other:
        made = await pending(
            one,
            labels=["promised"],
            run="r",
            idempotency_key="one",
            secrets={"KEY": SECRET},
            environment_vars={"A": SECRET},
            start_command=f"echo {SECRET}; sleep 600",
        )
        told = await other.get(made["id"])
        assert (told["status"], told["labels"], told["run"]) == ("PENDING", ["promised"], "r")
        assert told["secrets"] == {"KEY": "***"}
        listed = (await other.client.get("/api/v1/sandbox?labels=promised&is_active=true")).json()
        assert [sandbox["id"] for sandbox in listed["sandboxes"]] == [made["id"]]
        batch = await other.client.post("/api/v1/sandbox/status:batchGet", json={"sandbox_ids": [made["id"]]})
        assert [entry["status"] for entry in batch.json()["statuses"]] == ["PENDING"], batch.text
        again = await other.create(wait_seconds=0, idempotency_key="one")
        assert again.json()["id"] == made["id"]
        resource = world.server.call("GET", paths.sandboxes(world.namespace, made["id"]))
        spec = resource["spec"]
        assert (spec["state"], spec["sandboxId"], spec["tenant"]) == ("Pending", made["id"], "alpha")
        assert "podName" not in spec
        assert SECRET not in json.dumps(resource)

        running = asyncio.create_task(run_once_ready(other, made["id"], "echo $A $KEY"))
        await kubelet.pod(TEMPLATE, cold=await cold_name(world))
        assert await running == f"{SECRET} {SECRET}\n"
        for gateway in (one, other):
            assert (await status_at(gateway, made["id"], "RUNNING"))["environmentVars"] == {"A": SECRET}
            assert gateway.gateway.directory.holdings.of("alpha").sandboxes == 1
        # The pod's own resource tells of it now, and the other one is gone, which nobody takes for an end.
        await kubelet.until(lambda: made["id"] not in kubelet.sandboxes)
        assert kubelet.sandboxes[await cold_name(world)].spec.sandbox_id == made["id"]
        for gateway in (one, other):
            await until(
                lambda gateway=gateway: made["id"] not in gateway.gateway.backend._records.pending_creates
            )
            assert await gateway.run(made["id"], "echo on") == "on\n"
        assert (await other.client.delete(f"/api/v1/sandbox/{made['id']}")).status_code == 200
        assert (await one.is_ended(made["id"]))["verdict"] == "deleted"


async def test_a_warm_instance_is_written_into_the_resource_that_waits(world: World) -> None:
    kubelet = world.kubelet
    kubelet.make_cold = False
    async with world.gateway("a") as one, world.gateway("b") as other:
        made = await pending(one, labels=["promised"])
        await status_at(other, made["id"], "PENDING")
        pod = await kubelet.pod(TEMPLATE, pool="default")
        for gateway in (one, other):
            await status_at(gateway, made["id"], "RUNNING")
            assert await gateway.run(made["id"], "echo warm") == "warm\n"
        record = await kubelet.until(lambda: (found := kubelet.of_pod(pod)) and found)
        spec = record.spec
        assert (record.metadata.name, spec.sandbox_id, spec.state) == (made["id"], made["id"], "Running")
        assert (spec.labels, spec.waiting_until) == (["promised"], None)
        owned = [sandbox for sandbox in kubelet.sandboxes.values() if sandbox.spec.sandbox_id == made["id"]]
        assert len(owned) == 1
        assert (await other.client.delete(f"/api/v1/sandbox/{made['id']}")).status_code == 200
        assert (await one.is_ended(made["id"]))["verdict"] == "deleted"
        assert await kubelet.until(lambda: kubelet.sandboxes[made["id"]].status.verdict) == "deleted"


async def test_a_gateway_that_is_asked_to_end_brings_up_what_it_has_promised(world: World) -> None:
    kubelet = world.kubelet
    kubelet.make_cold = False
    async with world.gateway("b") as other:
        async with world.gateway("a", drain=300.0) as one:
            made = await pending(one, secrets={"KEY": SECRET})
            await status_at(other, made["id"], "PENDING")
            name = await cold_name(world)
            running = asyncio.create_task(run_once_ready(other, made["id"], "echo $KEY"))
            starting = asyncio.create_task(started_when_draining(world, one, name))
        await starting
        assert await running == f"{SECRET}\n"


async def started_when_draining(world: World, gateway: Running, name: str) -> None:
    await until(lambda: gateway.gateway.leaving)
    await world.kubelet.pod(TEMPLATE, cold=name)


async def test_a_delete_at_another_gateway_gives_up_its_place_in_the_line(world: World) -> None:
    kubelet = world.kubelet
    kubelet.make_cold = False
    async with world.gateway("a") as one, world.gateway("b") as other:
        made = await pending(one)
        assert one.gateway.supply.waiting == 1
        assert (await other.client.delete(f"/api/v1/sandbox/{made['id']}")).status_code == 200
        assert (await other.get(made["id"]))["status"] == "TERMINATED"
        assert (await one.is_ended(made["id"]))["verdict"] == "deleted"
        assert one.gateway.supply.waiting == 0
        assert await kubelet.until(lambda: kubelet.sandboxes[made["id"]].status.verdict) == "deleted"


async def test_a_delete_while_it_gets_its_instance_leaves_nothing(world: World) -> None:
    kubelet = world.kubelet
    kubelet.make_cold = False
    async with world.gateway("a") as one, world.gateway("b") as other:
        for pause in (0.0, 0.01, 0.05, 0.2):
            made = await pending(one)
            await status_at(other, made["id"], "PENDING")

            async def delete(sandbox_id: str = made["id"], pause: float = pause) -> None:
                await kubelet.until(lambda: kubelet.sidecars)
                waiting = kubelet.sidecars[next(iter(kubelet.sidecars))]
                await until(lambda: one.gateway.backend.instance(waiting.instance_id))
                await asyncio.sleep(pause)
                await other.client.delete(f"/api/v1/sandbox/{sandbox_id}")

            pod, _ = await asyncio.gather(kubelet.pod(TEMPLATE, pool="default"), delete())
            for gateway in (one, other):
                assert (await gateway.is_ended(made["id"]))["verdict"] == "deleted"
            # It was not claimed, and is warm still; or it was, and is over with what claimed it.
            await until(lambda pod=pod: pod not in kubelet.sidecars or pod in one.gateway.supply.slots.warm)
            assert await kubelet.until(lambda: kubelet.sandboxes[made["id"]].status.verdict) == "deleted"  # noqa: B023
            await kubelet.delete_pod(pod)
            await until(lambda: not len(one.gateway.supply.slots.warm))


async def test_a_cold_start_whose_pod_is_made_again_for_another_node_goes_on(world: World) -> None:
    kubelet = world.kubelet
    kubelet.make_cold = False
    async with world.gateway(backend={"verdict_wait": 0.1}) as gateway:
        answer = await gateway.create(wait_seconds=0)
        await kubelet.until(lambda: any(name.startswith("i-") for name in kubelet.sandboxes))
        (name,) = [name for name in kubelet.sandboxes if name.startswith("i-")]
        for _ in range(2):
            await kubelet.pod_object(TEMPLATE, cold=name)
            await until(lambda: gateway.gateway.backend.instance(name))
            await kubelet.delete_pod(name)
            await asyncio.sleep(0.5)  # several times as long as the controller would have for a verdict
        await kubelet.pod(TEMPLATE, cold=name)
        await status_at(gateway, answer.json()["id"], "RUNNING")
        assert await gateway.run(answer.json()["id"], "echo again") == "again\n"


async def test_a_failed_start_is_told_by_both(world: World) -> None:
    kubelet = world.kubelet
    kubelet.make_cold = False
    async with world.gateway("a") as one, world.gateway("b") as other:
        made = await pending(one)
        await status_at(other, made["id"], "PENDING")
        await kubelet.set_sandbox_status(
            await cold_name(world), phase="Ended", verdict="image_pull", message="no such image"
        )
        for gateway in (one, other):
            told = await gateway.is_ended(made["id"])
            assert (told["status"], told["errorType"]) == ("ERROR", "IMAGE_PULL_FAILED")
            assert "no such image" in told["errorMessage"]
        assert await kubelet.until(lambda: kubelet.sandboxes[made["id"]].status.verdict) == "image_pull"


async def test_it_is_renewed_and_a_gateway_that_starts_again_goes_on_with_it(world: World) -> None:
    kubelet = world.kubelet
    kubelet.make_cold = False
    backend = {"pending_create_lasts": 10.0}
    async with world.gateway("b") as other:
        async with world.gateway("a", backend=backend) as one:
            made = await pending(one, secrets={"KEY": SECRET})
            first = await kubelet.until(lambda: kubelet.sandboxes.get(made["id"]))
            await kubelet.until(
                lambda: kubelet.sandboxes[made["id"]].spec.waiting_until != first.spec.waiting_until
            )
            until = clock.seconds(kubelet.sandboxes[made["id"]].spec.waiting_until)
            assert until is not None
            assert until > time.time()
        assert (await other.get(made["id"]))["status"] == "PENDING"
        async with world.gateway("a", backend=backend) as one:
            assert (await one.get(made["id"]))["status"] == "PENDING"
            last = kubelet.sandboxes[made["id"]].spec.waiting_until
            await kubelet.until(lambda: kubelet.sandboxes[made["id"]].spec.waiting_until != last)
            await kubelet.pod(TEMPLATE, pool="default")
            for gateway in (one, other):
                await status_at(gateway, made["id"], "RUNNING")
                assert await gateway.run(made["id"], "echo $KEY") == f"{SECRET}\n"


async def test_one_that_ended_while_its_gateway_was_away_is_not_gone_on_with(world: World) -> None:
    kubelet = world.kubelet
    kubelet.make_cold = False
    async with world.gateway("b") as other:
        async with world.gateway("a") as one:
            made = await pending(one)
            await status_at(other, made["id"], "PENDING")
        await other.client.delete(f"/api/v1/sandbox/{made['id']}")
        assert await kubelet.until(lambda: kubelet.sandboxes[made["id"]].status.verdict) == "deleted"
    async with world.gateway("a") as one:
        assert (await one.is_ended(made["id"]))["verdict"] == "deleted"
        assert one.gateway.supply.waiting == 0


async def test_a_resource_that_is_deleted_while_it_waits_ends_its_sandbox(world: World) -> None:
    kubelet = world.kubelet
    kubelet.make_cold = False
    async with world.gateway("a") as one, world.gateway("b") as other:
        made = await pending(one)
        await status_at(other, made["id"], "PENDING")
        await kubelet.client.request("DELETE", paths.sandboxes(world.namespace, made["id"]))
        for gateway in (one, other):
            assert (await gateway.is_ended(made["id"]))["verdict"] == "deleted"
        assert one.gateway.supply.waiting == 0


async def test_without_an_api_server_the_answer_is_given_all_the_same(world: World) -> None:
    world.kubelet.make_cold = False
    async with world.gateway("a", backend={"pending_create_wait": 0.5}) as one, world.gateway("b") as other:
        with world.server.frozen():
            made = await pending(one)
        await status_at(other, made["id"], "PENDING")
