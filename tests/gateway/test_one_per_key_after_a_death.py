"""One idempotency key is one sandbox, also when the gateway that began its create is killed."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.gateway.kubernetes_world import NEEDS_API_SERVER, TEMPLATE, World
from tests.gateway.peer_gateways import SECRETS, Killed, address, claimed, cold_names
from tests.waiting import until

pytestmark = NEEDS_API_SERVER


async def test_what_a_gateway_has_claimed_last_before_it_died_is_found(world: World) -> None:
    host = address()
    async with world.gateway("b", host=host, port=18643, peers=f"{host}:18642") as other:
        async with Killed(world, host=host, port=18642, peers=f"{host}:18643") as killed:
            for _ in range(2):
                await world.kubelet.pod(TEMPLATE, pool="default")
            await other.warm(2)
            await killed.warm()
            with world.server.frozen():  # no record of its claim is written
                made = (await killed.create(idempotency_key="k")).json()
                assert made["status"] == "RUNNING", made
                killed.kill()
                again = await other.made(idempotency_key="k")
        assert again["id"] == made["id"]
        assert await claimed(world) == [made["id"]]


@pytest.mark.parametrize("answered", [True, False])
async def test_a_gateway_that_dies_while_it_starts_one_is_followed_by_who_has_the_retry(
    world: World, answered: bool
) -> None:
    """`answered`: the dead one has told its caller the id."""
    kubelet = world.kubelet
    kubelet.make_cold = False
    host = address()
    async with world.gateway("b", host=host, port=18643, peers=f"{host}:18642") as other:
        async with Killed(world, host=host, port=18642, peers=f"{host}:18643") as killed:
            body = {"idempotency_key": "k", "secrets": SECRETS, "wait_seconds": 0 if answered else 20}
            first = asyncio.create_task(killed.create(**body))
            await cold_names(world)
            told = (await first).json()["id"] if answered else None
            retried = asyncio.create_task(other.create(idempotency_key="k", secrets=SECRETS))
            await until(lambda: other.follows_any)
            kubelet.make_cold = True
            killed.kill()
            if not answered:
                [end] = await asyncio.gather(first, return_exceptions=True)
                if isinstance(end, httpx.Response):  # PENDING: the kill came after the create's wait
                    told = end.json()["id"]
                else:
                    assert isinstance(end, httpx.HTTPError), end
        made = await other.settled(await retried)
        assert made["status"] == "RUNNING", made
        assert told in (None, made["id"])
        assert await claimed(world) == [made["id"]]
        assert await other.run(made["id"], "echo $KEY") == f"{SECRETS['KEY']}\n"


async def test_a_gateway_that_comes_back_gives_way_to_who_took_its_create_over(world: World) -> None:
    """It was answered PENDING, so it is on the dead one's disk: what comes back finds it there and would start it again."""
    kubelet = world.kubelet
    kubelet.make_cold = False
    host = address()
    one, its = {"host": host, "port": 18642, "peers": f"{host}:18643"}, f"{host}:18642"
    async with world.gateway("b", host=host, port=18643, peers=its) as other:
        async with Killed(world, **one) as killed:
            told = (await killed.create(idempotency_key="k", secrets=SECRETS, wait_seconds=0)).json()
            assert told["status"] == "PENDING", told
            await cold_names(world)
            retried = asyncio.create_task(other.create(idempotency_key="k", secrets=SECRETS))
            await until(lambda: other.follows_any)
            killed.kill()
        kubelet.make_cold = True
        assert (await retried).json()["id"] == told["id"]
        async with Killed(world, **one) as back:

            async def is_running() -> bool:
                answer = await back.ask("GET", f"/api/v1/sandbox/{told['id']}")
                return answer.json().get("status") == "RUNNING"

            await until(is_running)
            again = (await back.create(idempotency_key="k", secrets=SECRETS)).json()
            assert again["id"] == told["id"]
            await until(lambda: not list((world.directory / "killed" / "pending").iterdir()))
            assert [owner for owner in await claimed(world) if owner == told["id"]] == [told["id"]]
            ran = await back.ask("POST", f"/sbx/{told['id']}/exec", body={"command": "echo $KEY"})
            assert ran.json()["stdout"] == f"{SECRETS['KEY']}\n"


async def test_a_create_that_begins_with_a_checkpoint_is_taken_over_with_its_files(world: World) -> None:
    kubelet = world.kubelet
    host = address()
    kept = {"checkpoint_dir": world.directory / "kept"}
    async with world.gateway("b", host=host, port=18643, peers=f"{host}:18642", **kept) as other:
        await kubelet.pod(TEMPLATE, pool="default")
        await other.warm()
        first = await other.made()
        await other.run(first["id"], "echo of-the-first > /file")
        made = (await other.client.post(f"/api/v1/sandbox/{first['id']}/checkpoints")).json()

        async def is_durable() -> bool:
            told = await other.client.get(f"/api/v1/sandbox/checkpoints/{made['id']}")
            assert told.json()["state"] != "FAILED", told.text
            return told.json()["state"] == "DURABLE"

        await until(is_durable)
        kubelet.make_cold = False
        body: dict[str, Any] = {"idempotency_key": "k", "checkpoint_id": made["id"]}
        body |= {"docker_image": None, "disk_size_gb": None}
        async with Killed(world, host=host, port=18642, peers=f"{host}:18643", **kept) as killed:
            told = (await killed.create(**body, wait_seconds=0)).json()
            assert told["status"] == "PENDING", told
            await cold_names(world)
            retried = asyncio.create_task(other.create(**body))
            await until(lambda: other.follows_any)
            kubelet.make_cold = True
            killed.kill()
        again = await other.settled(await retried)
        assert (again["id"], again["status"]) == (told["id"], "RUNNING"), again
        assert sorted(await claimed(world)) == sorted([first["id"], told["id"]])
        assert await other.run(told["id"], "cat /file") == "of-the-first\n"
