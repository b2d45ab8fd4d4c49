"""One idempotency key is one sandbox, at whichever gateways its creates arrive: beside each other, or after a death."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest
from sandlot_kube import clock

from tests import ports
from tests.gateway.kubernetes_world import FIELDS, NEEDS_API_SERVER, TEMPLATE, Running, World
from tests.waiting import until

pytestmark = NEEDS_API_SERVER

SECRETS = {"KEY": "value-of-the-secret"}
_numbers = itertools.count(50_000)  # those of the kubelet's sidecars are low


def address() -> str:
    """One on loopback that no other test has."""
    return ports.address(next(_numbers))


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


RUN = """
import runpy, time
true = time.time
time.time = lambda: true() + {clock_off}
runpy.run_module("sandlot_gateway", run_name="__main__", alter_sys=True)
"""


class Killed:
    """A gateway that is a process of its own, to be killed."""

    def __init__(
        self, world: World, *, port: int, host: str, peers: str, clock_off: float = 0.0, **more: Any
    ) -> None:
        """`clock_off`: seconds that its machine's clock is ahead of this one's."""
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
            **{name.replace("_", "-"): value for name, value in more.items()},
        }
        self._command = [
            sys.executable,
            "-c",
            RUN.format(clock_off=clock_off),
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

    async def ask(self, method: str, path: str, *, key: str = "key", body: Any = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(base_url=self._url, headers=headers, timeout=60) as client:
            return await client.request(method, path, json=body)

    async def create(self, **fields: Any) -> httpx.Response:
        headers = {"Authorization": "Bearer key"}
        async with httpx.AsyncClient(base_url=self._url, headers=headers, timeout=60) as client:
            return await client.post("/api/v1/sandbox", json={**FIELDS, **fields})

    async def warm(self) -> None:
        """Until it has every warm pod that there is."""
        headers = {"Authorization": "Bearer key"}
        async with httpx.AsyncClient(base_url=self._url, headers=headers, timeout=60) as client:

            async def has_all() -> bool:
                return "sandlot_ready_instances 2.0" in (await client.get("/metrics")).text

            await until(has_all)

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
        await until(lambda: other.gateway.lifecycle.following._secrets)
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
            await until(lambda: other.gateway.lifecycle.following._secrets)
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
            await until(lambda: other.gateway.lifecycle.following._secrets)
            killed.kill()
        kubelet.make_cold = True
        assert (await retried).json()["id"] == told["id"]
        async with Killed(world, **one) as back:

            async def is_running() -> bool:
                return (await back.ask("GET", f"/api/v1/sandbox/{told['id']}")).json()["status"] == "RUNNING"

            await until(is_running)
            again = (await back.create(idempotency_key="k", secrets=SECRETS)).json()
            assert again["id"] == told["id"]
            assert not list((world.directory / "killed" / "pending").iterdir())
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
            await until(lambda: other.gateway.lifecycle.following._secrets)
            kubelet.make_cold = True
            killed.kill()
        again = (await retried).json()
        assert (again["id"], again["status"]) == (told["id"], "RUNNING"), again
        assert sorted(await claimed(world)) == sorted([first["id"], told["id"]])
        assert await other.run(told["id"], "cat /file") == "of-the-first\n"


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
