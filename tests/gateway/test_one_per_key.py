"""One idempotency key is one sandbox, also when its creates arrive at two gateways at once."""

from __future__ import annotations

import asyncio
import time

import pytest
from sandlot_kube import clock

from tests.gateway.kubernetes_world import NEEDS_API_SERVER, TEMPLATE, Running, World
from tests.gateway.peer_gateways import SECRETS, Killed, address, claimed, cold_names, two_peers
from tests.waiting import until

pytestmark = NEEDS_API_SERVER


async def test_a_retry_at_another_gateway_finds_the_cold_start_under_way(world: World) -> None:
    world.kubelet.make_cold = False
    async with two_peers(world) as (one, other):
        first = asyncio.create_task(one.create(idempotency_key="k", secrets=SECRETS))
        [name] = await cold_names(world)
        retried = asyncio.create_task(other.create(idempotency_key="k", secrets=SECRETS))
        await until(lambda: other.gateway.directory.by_key("alpha", "k"))
        at_once = await other.create(idempotency_key="k", wait_seconds=0)
        assert at_once.json()["status"] == "PENDING"
        await world.kubelet.pod(TEMPLATE, cold=name)
        answers = [await one.settled(await first), await other.settled(await retried)]
        assert {answer["id"] for answer in answers} == {at_once.json()["id"]}
        assert [answer["status"] for answer in answers] == ["RUNNING", "RUNNING"]
        assert await claimed(world) == [answers[0]["id"]]
        assert await other.run(answers[0]["id"], "echo $KEY") == f"{SECRETS['KEY']}\n"
        assert await cold_names(world) == [name]
        assert (other.gateway.supply.waiting, other.gateway.supply.starting) == (0, 0)


async def test_creates_at_the_same_time_are_one_sandbox(world: World) -> None:
    kubelet = world.kubelet
    async with two_peers(world) as (one, other):
        for _ in range(6):
            await kubelet.pod(TEMPLATE, pool="default")
        for gateway in (one, other):
            await gateway.warm(6)
        for number in range(5):
            # The last two start cold, or wait.
            if number == 3:
                await asyncio.gather(*(kubelet.delete_pod(pod) for pod in list(kubelet.sidecars)))
                for gateway in (one, other):
                    await until(lambda gateway=gateway: not len(gateway.gateway.supply.slots.warm))
            answers = await asyncio.gather(
                *(gateway.made(idempotency_key=f"k{number}") for gateway in (one, other) * 3)
            )
            made = {answer["id"] for answer in answers}
            assert len(made) == 1, answers
            assert [owner for owner in await claimed(world) if owner in made] == list(made)
        owners = await claimed(world)
        assert len(owners) == len(set(owners))


async def test_what_the_first_has_claimed_is_found_though_no_record_tells_of_it(world: World) -> None:
    async with two_peers(world) as (one, other):
        for _ in range(2):
            await world.kubelet.pod(TEMPLATE, pool="default")
        for gateway in (one, other):
            await gateway.warm(2)
        await asyncio.to_thread(world.server.stop)
        made = await one.made(idempotency_key="k")
        again = await other.made(idempotency_key="k")
        assert again["id"] == made["id"]
        assert await claimed(world) == [made["id"]]


async def test_an_end_is_told_too(world: World) -> None:
    async with two_peers(world) as (one, other):
        await world.kubelet.pod(TEMPLATE, pool="default")
        await one.warm()
        await asyncio.to_thread(world.server.stop)
        made = await one.made(idempotency_key="k")
        await one.client.delete(f"/api/v1/sandbox/{made['id']}")
        again = (await other.create(idempotency_key="k")).json()
        assert (again["id"], again["status"], again["verdict"]) == (made["id"], "TERMINATED", "deleted")


async def test_a_refusal_is_told_to_both_and_leaves_nothing(world: World) -> None:
    world.kubelet.make_cold = False
    async with two_peers(world) as (one, other):
        creates = [asyncio.create_task(one.create(idempotency_key="k"))]
        [name] = await cold_names(world)
        creates.append(asyncio.create_task(other.create(idempotency_key="k")))
        await until(lambda: other.follows_any)
        await world.kubelet.set_sandbox_status(name, phase="Ended", verdict="image_pull", message="no such")
        told = [
            await gateway.settled(await create) for gateway, create in zip((one, other), creates, strict=True)
        ]
        assert {answer["id"] for answer in told} == {told[0]["id"]}
        assert [answer["errorType"] for answer in told] == ["IMAGE_PULL_FAILED", "IMAGE_PULL_FAILED"]


async def test_one_whose_secrets_are_not_its_tenant_s_is_refused_at_once(world: World) -> None:
    """With a key, too, it has no place in the queue while its secrets are read."""
    namespace = await asyncio.to_thread(world.server.namespace, "secrets")
    async with two_peers(world, secrets_namespace=namespace) as (one, _):
        refs = {"TOKEN": {"secret": "no-such", "key": "token"}}
        answer = await one.create(idempotency_key="k", wait_seconds=0, secret_refs=refs)
        assert answer.status_code == 422, answer.text


@pytest.mark.parametrize("off", [-7200.0, 7200.0])
async def test_a_gateway_whose_clock_is_wrong_makes_what_another_takes(world: World, off: float) -> None:
    kubelet = world.kubelet
    kubelet.make_cold = False
    host = address()
    async with (
        world.gateway("b", host=host, port=18643, peers=f"{host}:18642") as other,
        Killed(world, host=host, port=18642, peers=f"{host}:18643", clock_off=off) as wrong,
    ):
        made = (await wrong.create(idempotency_key="k", wait_seconds=0, secrets=SECRETS)).json()
        assert made["status"] == "PENDING", made
        waiting = await kubelet.until(lambda: kubelet.sandboxes.get(made["id"]))
        lasts = clock.seconds(waiting.spec.waiting_until)
        assert lasts is not None
        assert 0 < lasts - time.time() < 200
        again = (await other.create(idempotency_key="k", wait_seconds=0, secrets=SECRETS)).json()
        assert (again["id"], again["status"]) == (made["id"], "PENDING")
        [name] = await cold_names(world)
        await kubelet.pod(TEMPLATE, cold=name)
        ran = await until(lambda: _ran(other, made["id"]))
        assert ran == f"{SECRETS['KEY']}\n"
        # Each takes the other's tokens, for as long as they are to last.
        path = f"/sbx/{made['id']}/exec"
        told = (await wrong.ask("POST", f"/api/v1/sandbox/{made['id']}/auth")).json()
        headers = {"Authorization": f"Bearer {told['token']}"}
        answer = await other.client.post(path, json={"command": "echo on"}, headers=headers)
        assert answer.status_code == 200, answer.text
        lasts = clock.seconds(told["expires_at"])
        assert lasts is not None
        assert 3600 < lasts - time.time() < 7300
        told = (await other.client.post(f"/api/v1/sandbox/{made['id']}/auth")).json()
        answer = await wrong.ask("POST", path, key=told["token"], body={"command": "echo on"})
        assert answer.status_code == 200, answer.text
        assert (await wrong.ask("DELETE", f"/api/v1/sandbox/{made['id']}")).status_code == 200
        assert (await other.is_ended(made["id"]))["verdict"] == "deleted"
        ended = await kubelet.until(lambda: (found := kubelet.sandboxes.get(name)) and found.status.ended_at)
        at = clock.seconds(ended)
        assert at is not None
        assert abs(at - time.time()) < 60


async def _ran(gateway: Running, sandbox_id: str) -> str | None:
    answer = await gateway.client.post(
        f"/sbx/{sandbox_id}/exec", json={"command": "echo $KEY", "timeout": 20}
    )
    return answer.json()["stdout"] if answer.status_code == 200 else None


async def test_a_create_whose_question_fails_in_an_unexpected_way_has_an_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stayed pending for ever, and so did all others with its key."""

    async def fails(*_: object, **__: object) -> None:
        raise RuntimeError("a defect")

    async with two_peers(world) as (one, _):
        await world.kubelet.pod(TEMPLATE, pool="default")
        await one.warm(1)
        with monkeypatch.context() as patched:
            patched.setattr(one.gateway.backend.others, "holder_of_key", fails)
            failed = await one.settled(await one.create(idempotency_key="k"))
            again = await one.settled(await one.create(idempotency_key="k"))
        assert (failed["status"], failed["errorType"]) == ("ERROR", "START_FAILED")
        assert again["id"] == failed["id"]
        counted = one.gateway.metrics.registry.get_sample_value
        assert counted("sandlot_creates_total", {"source": "cold", "outcome": "failed"}) == 1.0
        assert counted("sandlot_sandbox_ends_total", {"verdict": "start_failed"}) == 1.0
        assert (await one.made(idempotency_key="k2"))["status"] == "RUNNING"
        assert one.gateway.supply.waiting == 0
