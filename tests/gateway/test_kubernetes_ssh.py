"""SSH sessions with two gateways over one API server: a connection may come to any of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncssh
import pytest
from sandlot_kube import paths

from tests.gateway.kubernetes_world import NEEDS_API_SERVER, TEMPLATE, Running, World
from tests.ports import free_port
from tests.waiting import SECONDS

pytestmark = NEEDS_API_SERVER


@asynccontextmanager
async def two_gateways(world: World) -> AsyncIterator[tuple[Running, Running]]:
    async with (
        world.gateway("a", ssh_port=free_port()) as one,
        world.gateway("b", ssh_port=free_port()) as other,
    ):
        yield one, other


async def sandbox(world: World, gateway: Running) -> str:
    await world.kubelet.pod(TEMPLATE, pool="default")
    await gateway.warm()
    return (await gateway.made())["id"]


class Session:
    """A key, and the session that lets it in."""

    def __init__(self, sandbox_id: str, key: asyncssh.SSHKey, document: dict[str, Any]) -> None:
        self.sandbox_id = sandbox_id
        self.key = key
        self.document = document

    @classmethod
    async def make(cls, gateway: Running, sandbox_id: str, **more: Any) -> Session:
        key = asyncssh.generate_private_key("ssh-ed25519")
        public = key.export_public_key().decode()
        path = f"/api/v1/sandbox/{sandbox_id}/ssh-session"
        answer = await gateway.client.post(path, json={"public_key": public, **more})
        assert answer.status_code == 200, answer.text
        return cls(sandbox_id, key, answer.json())

    @property
    def id(self) -> str:
        return self.document["session_id"]

    def connect(self, gateway: Running, *, user: str | None = None) -> Any:
        return asyncssh.connect(
            "127.0.0.1",
            gateway.gateway.settings.ssh_port,
            username=user or self.id,
            client_keys=[self.key],
            known_hosts=None,
            config=None,
        )

    async def delete(self, gateway: Running) -> int:
        path = f"/api/v1/sandbox/{self.sandbox_id}/ssh-session/{self.id}"
        return (await gateway.client.delete(path)).status_code


async def test_every_gateway_lets_in_whom_one_has_let_in(world: World) -> None:
    async with two_gateways(world) as (one, other):
        box = await sandbox(world, one)
        session = await Session.make(one, box)
        hosts = []
        for gateway in (other, one):
            async with session.connect(gateway) as connection:
                done = await connection.run("echo there; exit 3")
                assert (done.stdout, done.exit_status) == ("there\n", 3)
                hosts.append(connection.get_server_host_key().get_fingerprint())
        assert hosts[0] == hosts[1], "clients would warn of another host"


async def test_what_is_kept_lets_nobody_in(world: World) -> None:
    async with two_gateways(world) as (one, _):
        box = await sandbox(world, one)
        session = await Session.make(one, box)
        resource = json.dumps(world.server.call("GET", paths.sandboxes(world.namespace, box)))
        assert session.key.get_fingerprint() in resource
        assert session.id not in resource, "a connection has to name it"


async def test_one_gateway_cuts_what_came_in_by_the_other(world: World) -> None:
    async with two_gateways(world) as (one, other):
        box = await sandbox(world, one)
        session = await Session.make(one, box)
        connection = await session.connect(one)
        assert await session.delete(other) == 200
        async with asyncio.timeout(SECONDS):
            await connection.wait_closed()
        for gateway in (one, other):
            with pytest.raises(asyncssh.PermissionDenied):
                await session.connect(gateway)
            assert await session.delete(gateway) == 404


async def test_a_new_gateway_knows_the_sessions_of_an_earlier_one(world: World) -> None:
    async with world.gateway("a", ssh_port=free_port()) as one:
        box = await sandbox(world, one)
        session = await Session.make(one, box)
    async with world.gateway("b", ssh_port=free_port()) as other, session.connect(other) as connection:
        assert (await connection.run("echo again")).stdout == "again\n"
        await other.client.delete(f"/api/v1/sandbox/{box}")
        async with asyncio.timeout(SECONDS):
            await connection.wait_closed()


async def test_a_user_that_no_gateway_made_is_refused_without_a_wait(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandlot_gateway.ssh.sessions._PATIENCE", 600.0)
    async with two_gateways(world) as (one, _):
        session = await Session.make(one, await sandbox(world, one))
        for user in ("root", f"ssh-{'0' * 40}", session.id[:-1] + "x"):
            async with asyncio.timeout(60):
                with pytest.raises(asyncssh.PermissionDenied):
                    await session.connect(one, user=user)


async def test_clients_are_told_the_address_in_front_of_the_gateways(world: World) -> None:
    public = {"ssh_public_host": "ssh.example", "ssh_public_port": 2022}
    async with world.gateway("a", ssh_port=free_port(), **public) as gateway:
        session = await Session.make(gateway, await sandbox(world, gateway))
        assert (session.document["host"], session.document["port"]) == ("ssh.example", 2022)


async def test_without_a_port_there_are_none(world: World) -> None:
    async with world.gateway("a") as gateway:
        box = await sandbox(world, gateway)
        answer = await gateway.client.post(f"/api/v1/sandbox/{box}/ssh-session", json={"public_key": "x"})
        assert (answer.status_code, "no port for SSH" in answer.json()["detail"]) == (501, True)
