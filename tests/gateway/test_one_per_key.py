"""One idempotency key is one sandbox, at whichever gateways its creates arrive: beside each other, or after a death."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest

from tests.gateway.test_kubernetes_backend import (
    FIELDS,
    TEMPLATE,
    Running,
    World,
    apiserver,
    pytestmark,
    world,
)
from tests.waiting import until

__all__ = ["apiserver", "pytestmark", "world"]

SECRETS = {"KEY": "value-of-the-secret"}
_numbers = itertools.count(1)


def address() -> str:
    """One on loopback that no other test has."""
    return f"127.{64 + os.getpid() % 128}.{200 + os.getpid() // 128 % 50}.{next(_numbers) % 250 + 1}"


@asynccontextmanager
async def two(world: World, **options: Any) -> AsyncIterator[tuple[Running, Running]]:
    """Gateways that can ask each other, at two ports."""
    host = address()
    ports = (18642, 18643)
    async with AsyncExitStack() as stack:
        one, other = [
            await stack.enter_async_context(
                world.gateway(name, host=host, port=own, peers=f"{host}:{its}", **options)
            )
            for name, own, its in (("a", *ports), ("b", *ports[::-1]))
        ]
        yield one, other


class Killed:
    """A gateway that is a process of its own, to be killed."""

    def __init__(self, world: World, *, port: int, host: str, peers: str) -> None:
        self._world = world
        self._url = f"http://{host}:{port}"
        options = {
            "backend": "kubernetes",
            "key-file": world.directory / "master",
            "state-dir": world.directory / "killed",
            "host": host,
            "port": port,
            "webhook-port": 0,
            "api-keys": "key:alpha::operate",
            "namespace": world.namespace,
            "peers": peers,
            "log-level": "warning",
        }
        self._command = [
            sys.executable,
            "-m",
            "sandlot_gateway",
            *(text for name, value in options.items() for text in (f"--{name}", str(value))),
        ]

    async def __aenter__(self) -> Killed:
        self._process = await asyncio.create_subprocess_exec(*self._command, stdout=asyncio.subprocess.PIPE)
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), 60)
        assert b"ready at" in line
        return self

    async def __aexit__(self, *_: object) -> None:
        self.kill()
        await self._process.wait()

    async def create(self, **fields: Any) -> httpx.Response:
        headers = {"Authorization": "Bearer key"}
        async with httpx.AsyncClient(base_url=self._url, headers=headers, timeout=60) as client:
            return await client.post("/api/v1/sandbox", json={**FIELDS, **fields})

    async def warm(self) -> None:
        """Until it has every warm pod that there is."""
        headers = {"Authorization": "Bearer key"}
        async with asyncio.timeout(60), httpx.AsyncClient(base_url=self._url, headers=headers) as client:
            while "sandlot_ready_instances 2.0" not in (await client.get("/metrics")).text:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()


async def claimed(world: World) -> list[str]:
    """Which sandbox each sidecar has, by its own word."""
    found: list[str] = []
    for sidecar in world.kubelet.sidecars.values():
        headers = {"Authorization": f"Bearer {sidecar.config['token']}"}
        async with httpx.AsyncClient(
            base_url=f"http://{sidecar.config['listen']}", headers=headers
        ) as client:
            state = (await client.get("/v1/state")).json()
        found += [state["sandbox_id"]] if state["phase"] == "claimed" else []
    return found


async def cold_names(world: World, count: int = 1) -> list[str]:
    def names() -> list[str]:
        return [name for name in world.kubelet.sandboxes if name.startswith("i-")]

    return await world.kubelet.until(lambda: len(found := names()) >= count and found)


async def test_a_retry_at_another_gateway_finds_the_cold_start_under_way(world: World) -> None:
    world.kubelet.make_cold = False
    async with two(world) as (one, other):
        first = asyncio.create_task(one.create(idempotency_key="k", secrets=SECRETS))
        [name] = await cold_names(world)
        retried = asyncio.create_task(other.create(idempotency_key="k", secrets=SECRETS))
        await until(lambda: other.gateway.directory.by_key("alpha", "k"))
        at_once = await other.create(idempotency_key="k", wait_seconds=0)
        assert at_once.json()["status"] == "PENDING"
        await world.kubelet.pod(TEMPLATE, cold=name)
        answers = [(await first).json(), (await retried).json()]
        assert {answer["id"] for answer in answers} == {at_once.json()["id"]}
        assert [answer["status"] for answer in answers] == ["RUNNING", "RUNNING"]
        assert await claimed(world) == [answers[0]["id"]]
        assert await other.run(answers[0]["id"], "echo $KEY") == f"{SECRETS['KEY']}\n"
        assert await cold_names(world) == [name]
        assert (other.gateway.supply.waiting, other.gateway.supply.starting) == (0, 0)


async def test_creates_at_the_same_time_are_one_sandbox(world: World) -> None:
    kubelet = world.kubelet
    async with two(world) as (one, other):
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
                *(gateway.create(idempotency_key=f"k{number}") for gateway in (one, other) * 3)
            )
            made = {answer.json()["id"] for answer in answers}
            assert len(made) == 1, [answer.text for answer in answers]
            assert {answer.json()["status"] for answer in answers} == {"RUNNING"}
            assert [owner for owner in await claimed(world) if owner in made] == list(made)
        owners = await claimed(world)
        assert len(owners) == len(set(owners))


async def test_what_the_first_has_claimed_is_found_though_no_record_tells_of_it(world: World) -> None:
    async with two(world) as (one, other):
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
    async with two(world) as (one, other):
        await world.kubelet.pod(TEMPLATE, pool="default")
        await one.warm()
        await asyncio.to_thread(world.server.stop)
        made = await one.made(idempotency_key="k")
        await one.client.delete(f"/api/v1/sandbox/{made['id']}")
        again = (await other.create(idempotency_key="k")).json()
        assert (again["id"], again["status"], again["verdict"]) == (made["id"], "TERMINATED", "deleted")


async def test_a_refusal_is_told_to_both_and_leaves_nothing(world: World) -> None:
    world.kubelet.make_cold = False
    async with two(world) as (one, other):
        creates = [asyncio.create_task(one.create(idempotency_key="k"))]
        [name] = await cold_names(world)
        creates.append(asyncio.create_task(other.create(idempotency_key="k")))
        await until(lambda: other.gateway.lifecycle._followed)
        await world.kubelet.set_sandbox_status(name, phase="Ended", verdict="image_pull", message="no such")
        told = [(await create).json() for create in creates]
        assert {answer["id"] for answer in told} == {told[0]["id"]}
        assert [answer["errorType"] for answer in told] == ["IMAGE_PULL_FAILED", "IMAGE_PULL_FAILED"]


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
            await until(lambda: other.gateway.lifecycle._followed)
            kubelet.make_cold = True
            killed.kill()
            if not answered:
                with pytest.raises(httpx.HTTPError):
                    await first
        made = (await retried).json()
        assert made["status"] == "RUNNING", made
        assert told in (None, made["id"])
        assert await claimed(world) == [made["id"]]
        assert await other.run(made["id"], "echo $KEY") == f"{SECRETS['KEY']}\n"
