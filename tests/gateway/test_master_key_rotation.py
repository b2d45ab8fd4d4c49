"""The master key is replaced while sandboxes run: nothing of theirs stops, and what the old key made ends with it."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from sandlot_contract.keyring import Keyring

from tests.gateway.kubernetes_world import NEEDS_API_SERVER, TEMPLATE, Running, World
from tests.gateway.test_kubernetes_exposures import SERVE, expose
from tests.gateway.test_kubernetes_ssh import Session
from tests.ports import free_port
from tests.waiting import until

pytestmark = NEEDS_API_SERVER


class Secret:
    """The files of the mounted Secret, and the gateways that follow them."""

    def __init__(self, world: World, *gateways: Running) -> None:
        self._world = world
        self._gateways = gateways

    async def becomes(self, signing: bytes, **others: bytes) -> None:
        """Write them, and wait until every gateway uses them. The name of an other key follows that of the first."""
        directory = self._world.directory
        (directory / "master").write_bytes(signing)
        for file in directory.glob("master-*"):
            if file.name.removeprefix("master-") not in others:
                file.unlink()
        for name, key in others.items():
            (directory / f"master-{name}").write_bytes(key)
        wanted = Keyring(signing, *others.values())
        for gateway in self._gateways:
            await until(lambda gateway=gateway: gateway.gateway.tokens.keys == wanted)


@asynccontextmanager
async def gateways(world: World, *names: str) -> AsyncIterator[list[Running]]:
    found: list[Running] = []
    if not names:
        yield found
        return
    async with world.gateway(names[0], ssh_port=free_port()) as one, gateways(world, *names[1:]) as others:
        yield [one, *others]


async def pod_of_pool(world: World, gateway: Running) -> None:
    await world.kubelet.pod(TEMPLATE, pool="default")
    await gateway.warm()


def reload_failing(gateway: Running) -> dict[str, float]:
    families = text_string_to_metric_families(gateway.gateway.gauges.text().decode())
    samples = [
        one for family in families if family.name == "sandlot_reload_failing" for one in family.samples
    ]
    return {one.labels["file"]: one.value for one in samples}


async def ran_with(gateway: Running, sandbox: dict[str, Any]) -> httpx.Response:
    """A command with the sandbox's own client token."""
    headers = {"Authorization": f"Bearer {sandbox['gatewayAuth']['token']}"}
    return await gateway.client.post(
        f"/sbx/{sandbox['id']}/exec", json={"command": "echo still", "timeout": 20}, headers=headers
    )


async def test_sandboxes_outlive_their_master_key(world: World) -> None:
    old, new = world.key, secrets.token_bytes(32)
    async with gateways(world, "a", "b") as (one, other):
        secret = Secret(world, one, other)
        await pod_of_pool(world, one)
        box = await one.made()
        await one.run(box["id"], SERVE)
        exposure = await expose(one, box["id"])
        path = f"/expose/{exposure['exposure_id']}/"
        session = await Session.make(one, box["id"])
        await pod_of_pool(world, one)  # warm, with a token of the old key
        waits = "until [ -e /tmp/go ]; do sleep 0.05; done; echo done"
        command = asyncio.create_task(one.run(box["id"], waits))

        await secret.becomes(old, new=new)
        await secret.becomes(new, old=old)
        world.kubelet.use_key(new)

        async def all_goes_on(*those: Running) -> None:
            for gateway in those:
                assert await gateway.run(box["id"], "echo here") == "here\n"
                assert (await ran_with(gateway, box)).json()["stdout"] == "still\n"
                assert (await gateway.client.get(path)).text == "hello"
                async with session.connect(gateway) as connection:
                    assert (await connection.run("echo inside")).stdout.strip() in ("inside", b"inside")

        await all_goes_on(one, other)
        # A gateway that begins now has only its files and what Kubernetes shows.
        async with gateways(world, "c") as (late,):
            await until(lambda: late.gateway.directory.get(box["id"]))
            await all_goes_on(late)
        second = await other.made()  # in the pod of the old key
        assert second["status"] == "RUNNING"
        assert await one.run(second["id"], "echo second") == "second\n"
        await other.run(box["id"], "touch /tmp/go")
        assert await command == "done\n"

        await pod_of_pool(world, one)  # of the new key
        third = await one.made()
        later = await expose(one, third["id"], name="later")
        await other.client.delete(f"/api/v1/sandbox/{second['id']}")

        await secret.becomes(new)
        assert (await ran_with(one, box)).status_code == 401
        for gateway in (one, other):
            assert (await gateway.client.get(path)).status_code == 404
            assert gateway.gateway.exposures.find(later["exposure_id"]) is not None
            assert (await ran_with(gateway, third)).json()["stdout"] == "still\n"


async def test_files_without_a_key_change_nothing_and_are_told(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with gateways(world, "a") as (one,):
        secret = Secret(world, one)
        await pod_of_pool(world, one)
        box = await one.made()
        assert reload_failing(one) == dict.fromkeys(
            ("api_keys", "quotas", "prices", "master_key", "certificate", "sidecar_tls"), 0
        )
        (world.directory / "master-new").write_bytes(b"short")
        await until(lambda: reload_failing(one)["master_key"] == 1)
        assert await one.run(box["id"], "echo here") == "here\n"
        (message,) = (
            r.getMessage() for r in caplog.records if "the earlier keys stay valid" in r.getMessage()
        )
        assert "master-new: the master key must have at least 16 bytes" in message
        (world.directory / "master-new").unlink()
        await secret.becomes(secrets.token_bytes(32), old=world.key)
        assert reload_failing(one)["master_key"] == 0
        assert await one.run(box["id"], "echo here") == "here\n"
