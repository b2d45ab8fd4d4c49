"""While a gateway ends, the others' questions are answered until it has brought up what it has begun."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from tests import plain_http
from tests.gateway.kubernetes_world import FIELDS, NEEDS_API_SERVER, TEMPLATE, Running, World
from tests.gateway.peer_gateways import SECRETS, Killed, address, claimed, cold_names, two_peers
from tests.waiting import until

pytestmark = NEEDS_API_SERVER


async def ask(
    gateway: Running,
    path: str,
    *,
    method: str = "GET",
    token: str = "key",
    params: Any = None,
    body: Any = None,
) -> httpx.Response | None:
    """The answer over a new connection, or None if that is refused."""
    headers = {"Authorization": f"Bearer {token}"}
    async with plain_http.async_client(base_url=gateway.url, headers=headers, timeout=60) as client:
        try:
            return await client.request(method, path, params=params, json=body)
        except httpx.ConnectError:
            return None


async def holder(gateway: Running, key: str) -> dict[str, Any] | None:
    """What another gateway is told that has no connection yet: which sandbox has the key."""
    question = {"tenant": "alpha", "key": key, "sandbox_id": f"sb-{'z' * 20}", "gateway": "another"}
    told = await ask(gateway, "/internal/keys", token=gateway.gateway.tokens.peer(), params=question)
    assert told is not None, "the gateway accepts no connections"
    assert told.status_code == 200, told.text
    return told.json()["holder"]


async def drains(gateway: Running) -> None:
    """It has been asked to end, and serves clients no more."""
    gateway.ending.begin()

    async def refuses() -> bool:
        told = await ask(gateway, "/api/v1/sandbox")
        return told is None or told.status_code == 503

    await until(refuses)


@pytest.mark.parametrize("recorded", [True, False])
async def test_a_retry_elsewhere_follows_what_a_draining_gateway_brings_up(
    world: World, recorded: bool
) -> None:
    """`recorded`: the other gateway knows the sandbox by its record. Else only the one that drains can tell of it."""
    kubelet = world.kubelet
    kubelet.make_cold = False
    body = {"idempotency_key": "k", "secrets": SECRETS}
    async with two_peers(world, drain=300.0) as (one, other):
        with ExitStack() as stack:
            if not recorded:
                stack.enter_context(world.server.frozen())
            made = (await one.create(**body, wait_seconds=0)).json()
            assert made["status"] == "PENDING", made
            if recorded:
                await until(lambda: other.gateway.directory.get(made["id"]))
            await drains(one)
            assert (await holder(one, "k") or {})["sandbox_id"] == made["id"]
            again = (await other.create(**body, wait_seconds=0)).json()
            assert (again["id"], again["status"]) == (made["id"], "PENDING")
        assert not one.task.done()
        [name] = await cold_names(world)
        await kubelet.pod(TEMPLATE, cold=name)
        again = await other.made(**body)
        assert await one.task == 0
        assert again["id"] == made["id"]
        assert await claimed(world) == [made["id"]]
        assert await cold_names(world) == [name]
        assert await ask(one, "/readyz") is None
        assert await other.run(made["id"], "echo $KEY") == f"{SECRETS['KEY']}\n"


async def test_clients_of_a_draining_gateway_are_sent_to_another(world: World) -> None:
    world.kubelet.make_cold = False
    async with two_peers(world, drain=300.0) as (one, other):
        made = (await one.create(idempotency_key="k", wait_seconds=0)).json()
        await drains(one)
        of_it = (f"/api/v1/sandbox/{made['id']}", f"/sbx/{made['id']}/ops")
        for told in (
            *[await ask(one, path) for path in ("/api/v1/sandbox", *of_it)],
            await ask(one, "/api/v1/sandbox", method="POST", body=FIELDS),
        ):
            assert told is not None
            assert (told.status_code, told.headers["retry-after"]) == (503, "1"), told.text
            assert "close" in told.headers["connection"]
            assert "shutting down" in told.text
            assert told.headers["x-request-id"]
        told = [await ask(one, path) for path in ("/healthz", "/readyz")]
        assert [answer.status_code for answer in told if answer is not None] == [200, 503]
        assert (await other.client.delete(f"/api/v1/sandbox/{made['id']}")).status_code == 200
        assert await one.task == 0


async def test_what_a_draining_gateway_does_not_bring_up_in_time_another_one_does(world: World) -> None:
    kubelet = world.kubelet
    kubelet.make_cold = False
    body = {"idempotency_key": "k", "secrets": SECRETS}
    async with two_peers(world, drain=1.0) as (one, other):
        made = (await one.create(**body, wait_seconds=0)).json()
        await cold_names(world)
        # Once it has ended, only its record tells of it.
        await until(lambda: other.gateway.directory.get(made["id"]))
        retried = asyncio.create_task(other.create(**body))
        one.ending.begin()
        assert await asyncio.wait_for(one.task, 60) == 0
        assert await ask(one, "/readyz") is None
        kubelet.makes_cold()
        again = await other.settled(await retried)
        assert (again["id"], again["status"]) == (made["id"], "RUNNING"), again
        assert await claimed(world) == [made["id"]]


async def test_what_a_gateway_gives_up_that_is_asked_again_to_end_another_one_brings_up(world: World) -> None:
    kubelet = world.kubelet
    kubelet.make_cold = False
    body = {"idempotency_key": "k", "secrets": SECRETS}
    host = address()
    async with world.gateway("b", host=host, port=18643, peers=f"{host}:18642") as other:
        async with Killed(world, host=host, port=18642, peers=f"{host}:18643", drain=600) as one:
            made = (await one.create(**body, wait_seconds=0)).json()
            await cold_names(world)
            retried = asyncio.create_task(other.create(**body))
            one.terminate()
            await until(one.drains)
            one.terminate()
            assert await one.ended() == 0
        kubelet.makes_cold()
        assert (await retried).json()["id"] == made["id"]
        again = await other.made(idempotency_key="k", secrets=SECRETS)
        assert (again["id"], again["status"]) == (made["id"], "RUNNING"), again
        assert await claimed(world) == [made["id"]]


async def test_a_create_whose_body_arrives_while_its_gateway_drains_is_known_to_the_others(
    world: World,
) -> None:
    async with two_peers(world, drain=300.0) as (one, other):
        host, _, port = one.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        content = json.dumps({**FIELDS, "idempotency_key": "k", "wait_seconds": 20}).encode()
        head = f"POST /api/v1/sandbox HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer key\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        writer.write(head.encode() + content[:10])
        await until(lambda: one.gateway.edge.in_flight)
        await drains(one)
        assert await holder(one, "k") is None
        writer.write(content[10:])
        told = await reader.read()
        assert told.startswith(b"HTTP/1.1 201 "), told
        made = json.loads(told.partition(b"\r\n\r\n")[2])
        writer.close()
        assert await one.task == 0
        assert (await other.made(idempotency_key="k"))["id"] == made["id"]

        async def is_the_only_one() -> bool:
            return await claimed(world) == [made["id"]]

        # A sidecar that gets no time for 3 s counts as having no claim: then the other gateway claims again, and it ends.
        await until(is_the_only_one)
