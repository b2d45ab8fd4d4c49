"""Gateways ask each other for a sandbox that one of them has just made, whose record nobody can read yet."""

from __future__ import annotations

import asyncio
import time

import pytest
from sandlot_contract.new_ids import new_sandbox_id
from sandlot_gateway.app import Gateway
from sandlot_gateway.backends.kubernetes.peer_calls import Missing
from sandlot_gateway.backends.kubernetes.peers import Peers, PeerSettings
from sandlot_gateway.core.owners import RecordedEnd
from sandlot_gateway.data.pool import HttpPool

from tests.gateway.kubernetes_world import NEEDS_API_SERVER, TEMPLATE, Running, World
from tests.gateway.peer_gateways import two_peers
from tests.ports import free_port

pytestmark = NEEDS_API_SERVER


def port_of(gateway: Running) -> str:
    return gateway.url.rpartition(":")[2]


async def holder(
    gateway: Gateway,
    name: str,
    sandbox_id: str,
    *,
    own_host: str = "0.0.0.0",
    own_port: int = 1,
    timeout: float = 20.0,
) -> str | RecordedEnd | None:
    pool = HttpPool()
    try:
        settings = PeerSettings(name, own_host=own_host, own_port=own_port, timeout=timeout)
        peers = Peers(settings, pool=pool, token=gateway.tokens.peer)
        found = await peers.whereabouts(sandbox_id)
        return None if isinstance(found, Missing) else found
    finally:
        await pool.close()


async def test_a_command_finds_what_another_gateway_has_just_made(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "sandlot_gateway.sandbox_waits.MISSED_AFTER", 3600.0
    )  # else every sidecar would be asked
    async with world.gateway("a") as a, world.gateway("b", peers=f"localhost:{port_of(a)}") as b:
        await world.kubelet.pod(TEMPLATE, pool="default")  # tells gateway a alone
        await asyncio.gather(a.warm(), b.warm())
        await asyncio.to_thread(world.server.stop)  # no record will tell of it
        made = await a.made()
        assert await b.run(made["id"], "echo there") == "there\n"
        assert (await b.get(made["id"]))["status"] == "RUNNING"


async def test_a_list_has_what_another_gateway_has_just_made(world: World) -> None:
    async with world.gateway("a") as a, world.gateway("b", peers=f"localhost:{port_of(a)}") as b:
        await world.kubelet.pod(TEMPLATE, pool="default", reused=True)  # a young one has no record
        await asyncio.gather(a.warm(), b.warm())
        made = await a.made(labels=["mine"])
        for labels, count in (["mine"], 1), (["other"], 0):
            listed = (await b.client.get("/api/v1/sandbox", params={"labels": labels})).json()
            assert [one["id"] for one in listed["sandboxes"]] == [made["id"]] * count


async def test_a_delete_by_label_finds_what_another_gateway_has_just_made(world: World) -> None:
    async with world.gateway("a") as a, world.gateway("b", peers=f"localhost:{port_of(a)}") as b:
        await world.kubelet.pod(TEMPLATE, pool="default", reused=True)
        await asyncio.gather(a.warm(), b.warm())
        made = await a.made(labels=["mine"])
        answer = await b.client.request("DELETE", "/api/v1/sandbox", json={"labels": ["mine"]})
        assert answer.json()["succeeded"] == [made["id"]]
        assert (await a.is_ended(made["id"]))["verdict"] == "deleted"


async def test_a_deleted_one_is_over_at_another_gateway(world: World) -> None:
    async with two_peers(world) as (one, other):
        for _ in range(5):
            pod = await world.kubelet.pod(TEMPLATE, pool="default", reused=True)
            await asyncio.gather(one.warm(), other.warm())
            made = await one.made()
            # No record tells of it.
            assert one.gateway.directory.get(made["id"]).instance_id == pod  # type: ignore[union-attr]
            assert await other.run(made["id"], "echo there") == "there\n"
            await one.client.delete(f"/api/v1/sandbox/{made['id']}")
            assert (await other.get(made["id"]))["status"] == "TERMINATED"


@pytest.mark.parametrize("cold", [False, True], ids=["of a pool", "cold"])
async def test_a_deleted_one_that_takes_its_pod_along_is_over_at_another_gateway(
    world: World, cold: bool
) -> None:
    async with two_peers(world) as (one, other):
        if not cold:
            await world.kubelet.pod(TEMPLATE, pool="default")
            await asyncio.gather(one.warm(), other.warm())
        made = await one.made()
        assert made["poolHit"] is not cold
        assert await other.run(made["id"], "echo there") == "there\n"
        await asyncio.to_thread(world.server.stop)  # no watch shows the record's end
        assert (await one.client.delete(f"/api/v1/sandbox/{made['id']}")).status_code == 200
        told = await other.get(made["id"])
        assert (told["status"], told["verdict"]) == ("TERMINATED", "deleted")


async def test_a_list_does_without_gateways_that_do_not_answer(world: World) -> None:
    async with world.gateway("a", peers=f"localhost:{free_port()}") as a:
        await world.kubelet.pod(TEMPLATE, pool="default", reused=True)
        await a.warm()
        made = await a.made()
        listed = (await a.client.get("/api/v1/sandbox")).json()
        assert [one["id"] for one in listed["sandboxes"]] == [made["id"]]


async def test_a_gateway_says_which_instance_has_a_sandbox(world: World) -> None:
    async with world.gateway("a") as a:
        instance = await world.kubelet.pod(TEMPLATE, pool="default")
        await a.warm()
        made = await a.made()
        name = f"localhost:{port_of(a)}"
        assert await holder(a.gateway, name, made["id"]) == instance
        assert await holder(a.gateway, name, made["id"], own_port=int(port_of(a))) is None  # not of itself
        # One with the same port on another address of the machine.
        beside = {"own_host": "127.0.0.2", "own_port": int(port_of(a))}
        assert await holder(a.gateway, name, made["id"], **beside) == instance
        assert await holder(a.gateway, name, new_sandbox_id(time.time())) is None
        assert await holder(a.gateway, "localhost:1", made["id"]) is None
        assert await holder(a.gateway, "no-such-name.invalid.:8642", made["id"], timeout=1.0) is None
        await a.client.delete(f"/api/v1/sandbox/{made['id']}")
        end = await holder(a.gateway, name, made["id"])
        assert isinstance(end, RecordedEnd)
        assert (end.sandbox_id, end.verdict) == (made["id"], "deleted")


async def test_nobody_but_a_gateway_is_told(world: World) -> None:
    async with world.gateway("a") as a:
        for path in (
            f"/internal/sandboxes/{new_sandbox_id(time.time())}/instance",
            "/internal/claims?tenant=alpha",
        ):
            for credential in (b"Bearer key", "Bearer spt_\u00e9".encode(), b"Basic a2V5", b""):
                assert (await a.client.get(path, headers={b"Authorization": credential})).status_code == 401
            assert (await a.client.get(path)).status_code == 401


async def test_what_has_no_record_yet_can_be_exposed_by_another_gateway(world: World) -> None:
    async with world.gateway("a") as a, world.gateway("b", peers=f"localhost:{port_of(a)}") as b:
        await world.kubelet.pod(TEMPLATE, pool="default")
        await asyncio.gather(a.warm(), b.warm())
        made = await a.made()
        answer = await b.client.post(f"/api/v1/sandbox/{made['id']}/expose", json={"port": 8000})
        assert answer.status_code == 200, answer.text


async def test_beside_a_dead_gateway_a_wrong_id_is_soon_unknown(world: World) -> None:
    """Its address stays for as long as its pod does: one that crashes again and again, say."""
    async with world.gateway("a", peers=f"localhost:{free_port()}") as a:
        await world.kubelet.pod(TEMPLATE, pool="default")
        await a.warm()
        wrong = new_sandbox_id(time.time() - 600)
        async with asyncio.timeout(30):
            while (answer := await a.client.get(f"/api/v1/sandbox/{wrong}")).status_code == 503:
                assert answer.headers["retry-after"] == "1"
        assert answer.status_code == 404, answer.text


async def test_no_older_sandbox_is_denied_while_the_others_cannot_be_found(world: World) -> None:
    async with world.gateway("a", peers="no-such-name.invalid.:8642") as a:
        for _ in range(3):
            older = new_sandbox_id(time.time() - 600)
            answer = await a.client.get(f"/api/v1/sandbox/{older}")
            assert (answer.status_code, answer.headers.get("retry-after")) == (503, "1"), answer.text
