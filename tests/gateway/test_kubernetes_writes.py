"""What a sandbox's whole life costs the API server, counted in its audit log: gateway and controller are real."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sandlot_kube import paths

from tests.gateway.kubernetes_world import REPLACED, World, pool_fields, world_of_two_users
from tests.gateway.test_kubernetes_controller import Node, controller
from tests.kube.apiserver import ApiServer
from tests.waiting import until

pytestmark = [
    pytest.mark.programs,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real sidecars make namespaces and mounts"),
]

SANDBOXES = 6


@pytest.fixture
async def world(apiserver: ApiServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    async with world_of_two_users(apiserver, monkeypatch) as world:
        yield world


@pytest.mark.timeout(400)  # half a minute alone and the rest of the minute, until what has ended is removed
async def test_a_warm_sandbox_costs_four_writes_and_its_share_of_one_removal(world: World) -> None:
    node = Node(world.server, namespace=world.namespace)
    async with (
        node.running(),
        world.gateway() as gateway,
        controller(world, webhook=gateway.webhook, retention=1.0),
    ):

        def resources() -> list[dict[str, Any]]:
            return world.server.call("GET", paths.sandboxes(world.namespace))["items"]

        await gateway.client.put("/api/v1/pools/default", json={**pool_fields(), **REPLACED, "size": 1})
        began = time.monotonic()
        for _ in range(SANDBOXES):
            await gateway.warm()
            made = await gateway.made()
            assert made["poolHit"] is True
            assert await gateway.run(made["id"], "echo on") == "on\n"
            pod = gateway.gateway.directory.get(made["id"]).instance_id  # type: ignore[union-attr]
            await gateway.client.delete(f"/api/v1/sandbox/{made['id']}")
            await until(lambda pod=pod: pod not in node.sidecars)
        minutes = (time.monotonic() - began) / 60
        # No sandbox is without its end, its pod and its resource gone: at most two minutes later.
        await until(lambda: not resources())
        await gateway.warm()
        assert (await gateway.client.delete("/api/v1/pools/default")).status_code == 200
        await until(lambda: not node.sidecars)

    by_gateway = Counter(world.server.writes("gateway", namespace=world.namespace))
    for verb in ("create", "patch", "delete"):
        del by_gateway[verb, "sandboxpools"]
    assert by_gateway == {("create", "sandboxes"): SANDBOXES, ("patch", "sandboxes/status"): SANDBOXES}

    by_controller = Counter(world.server.writes("controller", namespace=world.namespace))
    removals = by_controller.pop(("deletecollection", "sandboxes"))
    assert 1 <= removals <= 2 + minutes  # one of each minute in which some ended
    del by_controller["patch", "sandboxpools/status"]
    # One more pod was warm to the end.
    assert by_controller == {("create", "pods"): SANDBOXES + 1, ("delete", "pods"): SANDBOXES + 1}


@pytest.mark.timeout(400)  # half a minute alone and the rest of the minute, until what has ended is removed
async def test_what_ends_in_one_moment_costs_less_than_four_with_all_that_is_written_by_time(
    world: World,
) -> None:
    at_once, rounds = 4, 2
    node = Node(world.server, namespace=world.namespace)
    async with (
        node.running(),
        world.gateway() as gateway,
        # A loaded machine refills the pool later than after five seconds, and would cost a status each five more.
        controller(world, webhook=gateway.webhook, retention=1.0, status_interval=600.0),
    ):
        await gateway.client.put("/api/v1/pools/default", json={**pool_fields(), **REPLACED, "size": at_once})
        await gateway.warm(at_once)
        before = [len(world.server.writes(user, namespace=world.namespace)) for user in world.server.tokens]
        for _ in range(rounds):
            await gateway.warm(at_once)
            boxes = [await gateway.made() for _ in range(at_once)]
            assert all(box["poolHit"] for box in boxes)
            pods = [gateway.gateway.directory.get(box["id"]).instance_id for box in boxes]  # type: ignore[union-attr]
            await asyncio.gather(*(gateway.client.delete(f"/api/v1/sandbox/{box['id']}") for box in boxes))
            await until(lambda pods=pods: not set(pods) & node.sidecars.keys())
        listed = paths.sandboxes(world.namespace)
        await until(lambda: not world.server.call("GET", listed)["items"])
        after = [len(world.server.writes(user, namespace=world.namespace)) for user in world.server.tokens]
        written = Counter(world.server.writes("controller", namespace=world.namespace))
    assert written["deletecollection", "pods"] + written["delete", "pods"] < at_once * rounds
    # Leases are not counted; the statuses of the pool and the removal of what has ended are.
    assert sum(after) - sum(before) <= 4 * at_once * rounds, written


async def test_one_that_was_answered_pending_costs_two_more(world: World) -> None:
    node = Node(world.server, namespace=world.namespace)
    async with node.running(), world.gateway() as gateway, controller(world, webhook=gateway.webhook):
        made = (await gateway.create(wait_seconds=0)).json()
        assert made["status"] == "PENDING"
        await until(lambda: gateway.gateway.directory.get(made["id"]).status == "RUNNING")  # type: ignore[union-attr]
        assert await gateway.run(made["id"], "echo on") == "on\n"
        await gateway.client.delete(f"/api/v1/sandbox/{made['id']}")
        await until(lambda: not node.sidecars)
    by_gateway = Counter(world.server.writes("gateway", namespace=world.namespace))
    assert by_gateway == {
        ("create", "sandboxes"): 2,
        ("patch", "sandboxes"): 1,
        ("delete", "sandboxes"): 1,
        ("patch", "sandboxes/status"): 1,
    }
    assert world.server.writes("controller", namespace=world.namespace) == [
        ("create", "pods"),
        ("delete", "pods"),
    ]


async def test_a_create_whose_gateway_dies_is_a_failed_start_at_the_others(world: World) -> None:
    async with world.gateway("b") as other, controller(world, webhook=other.webhook):
        async with world.gateway("a", backend={"pending_create_lasts": 3.0}) as one:
            made = (await one.create(wait_seconds=0)).json()
            assert made["status"] == "PENDING"
            await until(lambda: other.gateway.directory.get(made["id"]))
        told = await other.is_ended(made["id"])
        assert (told["status"], told["errorType"]) == ("ERROR", "START_FAILED")
        assert "gateway" in told["errorMessage"]


async def test_a_cold_one_costs_as_many(world: World) -> None:
    node = Node(world.server, namespace=world.namespace)
    async with node.running(), world.gateway() as gateway, controller(world, webhook=gateway.webhook):
        made = await gateway.made()
        assert made["poolHit"] is False
        assert await gateway.run(made["id"], "echo on") == "on\n"
        [resource] = world.server.call("GET", paths.sandboxes(world.namespace))["items"]
        assert (resource["spec"]["madeFor"], resource["spec"]["state"]) == (made["id"], "Started")
        await gateway.client.delete(f"/api/v1/sandbox/{made['id']}")
        await until(lambda: not node.sidecars)
        [resource] = world.server.call("GET", paths.sandboxes(world.namespace))["items"]
        assert (resource["status"]["sandboxId"], resource["status"]["verdict"]) == (made["id"], "deleted")
    assert world.server.writes("gateway", namespace=world.namespace) == [
        ("create", "sandboxes"),
        ("patch", "sandboxes/status"),
    ]
    assert world.server.writes("controller", namespace=world.namespace) == [
        ("create", "pods"),
        ("delete", "pods"),
    ]


async def test_cold_ones_that_are_asked_for_at_once_each_get_their_own_start(world: World) -> None:
    at_once = 3
    node = Node(world.server, namespace=world.namespace)
    async with (
        node.running(),
        world.gateway("b") as other,
        world.gateway("a") as one,
        controller(world, webhook=other.webhook),
    ):
        boxes = await asyncio.gather(*(one.made() for _ in range(at_once)))
        # The other gateway knows them by their sidecars' words alone.
        for box in boxes:
            assert await other.run(box["id"], "echo on") == "on\n"
        await asyncio.gather(*(other.client.delete(f"/api/v1/sandbox/{box['id']}") for box in boxes))
        await until(lambda: not node.sidecars)
    assert Counter(world.server.writes("gateway", namespace=world.namespace)) == {
        ("create", "sandboxes"): at_once,
        ("patch", "sandboxes/status"): at_once,
    }


async def test_a_cold_one_whose_pod_dies_is_known_by_its_id_to_a_gateway_that_comes_later(
    world: World,
) -> None:
    node = Node(world.server, namespace=world.namespace)
    async with node.running():
        async with world.gateway("a") as one, controller(world, webhook=one.webhook):
            made = await one.made()
            pod = one.gateway.directory.get(made["id"]).instance_id  # type: ignore[union-attr]
            world.server.call("DELETE", paths.pods(world.namespace, pod))
            assert (await one.is_ended(made["id"]))["errorType"] == "EVICTED"

            def owner() -> str | None:
                resource = world.server.call("GET", paths.sandboxes(world.namespace, pod))
                # In the status by who knew it when it wrote the end, else in the spec by who hears of the end.
                return resource["status"].get("sandboxId") or resource["spec"].get("sandboxId")

            await until(lambda: owner() == made["id"])
        async with world.gateway("b") as later:
            assert (await later.is_ended(made["id"]))["errorType"] == "EVICTED"


async def test_of_two_gateways_the_one_that_was_asked_writes_the_end(world: World) -> None:
    """The sidecar tells the other one."""
    node = Node(world.server, namespace=world.namespace)
    async with (
        node.running(),
        world.gateway("b") as other,
        world.gateway("a") as one,
        controller(world, webhook=other.webhook),
    ):
        for _ in range(SANDBOXES):
            made = await one.made()
            await until(lambda made=made: other.gateway.directory.get(made["id"]))
            assert (await one.client.delete(f"/api/v1/sandbox/{made['id']}")).status_code == 200
            assert (await other.is_ended(made["id"]))["errorType"] is None
        await until(lambda: not node.sidecars)
    by_gateway = Counter(world.server.writes("gateway", namespace=world.namespace))
    assert by_gateway["patch", "sandboxes/status"] == SANDBOXES


async def test_an_end_whose_gateway_died_is_written_by_the_one_that_heard_of_it(world: World) -> None:
    node = Node(world.server, namespace=world.namespace)
    async with node.running(), world.gateway() as gateway, controller(world, webhook=gateway.webhook):
        made = await gateway.made()
        instance = gateway.gateway.directory.get(made["id"]).instance_id  # type: ignore[union-attr]
        # As a gateway asks for it that dies before it writes.
        await node.sidecars[instance].ask_end("deleted")
        assert (await gateway.is_ended(made["id"]))["status"] == "TERMINATED"

        def status() -> dict[str, Any]:
            return world.server.call("GET", paths.sandboxes(world.namespace, instance)).get("status", {})

        await until(lambda: status().get("phase") == "Ended")
        assert status()["verdict"] == "deleted"
        await until(lambda: not node.sidecars)
