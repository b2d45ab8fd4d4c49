"""Pools whose pods are reset, over a real API server with real sidecars: gateway and controller are real, too."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sandlot_gateway import sandbox_waits
from sandlot_kube import paths
from sandlot_kube.client import MERGE_PATCH

from tests.gateway.kubernetes_world import Running, World, pool_fields, world_of_two_users
from tests.gateway.test_kubernetes_controller import Node, controller
from tests.kube.apiserver import ApiServer
from tests.waiting import until

pytestmark = [
    pytest.mark.programs,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real sidecars make namespaces and mounts"),
]

SIZE = 2
YOUNG = {"young": 600.0}  # seconds; none of a test lives long enough for a record
KEYS = "key:alpha::operate,other:beta::operate"


@pytest.fixture
async def world(apiserver: ApiServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    async with world_of_two_users(apiserver, monkeypatch) as world:
        yield world


@asynccontextmanager
async def pool(world: World, *gateways: Running, **reuse: Any) -> AsyncIterator[Node]:
    """A full pool of two that resets its pods, as pools do by default. `reuse`: its limits."""
    node = Node(world.server, namespace=world.namespace)
    async with node.running(), controller(world, webhook=gateways[0].webhook):
        body = {
            "apiVersion": "sandlot.dev/v1alpha1",
            "kind": "SandboxPool",
            "metadata": {"name": "default"},
            "spec": {
                "size": SIZE,
                **({"reuse": reuse} if reuse else {}),
                "template": _template(),
            },
        }
        await asyncio.to_thread(world.server.call, "POST", paths.pools(world.namespace), body)
        for gateway in gateways:
            await gateway.warm(SIZE)
        yield node


def _template() -> dict[str, Any]:
    fields = pool_fields()
    return {
        "image": fields["image"],
        "cpu": fields["cpu_cores"],
        "memory": round(fields["memory_gb"] * (1 << 30)),
        "disk": round(fields["disk_size_gb"] * (1 << 30)),
        "pids": fields["pids"],
    }


def instance(gateway: Running, made: dict[str, Any]) -> str:
    sandbox = gateway.gateway.directory.get(made["id"])
    assert sandbox is not None
    assert sandbox.instance_id is not None
    return sandbox.instance_id


def resources(world: World) -> list[dict[str, Any]]:
    return world.server.call("GET", paths.sandboxes(world.namespace))["items"]


async def rollout(gateway: Running) -> tuple[str, int]:
    """Create, command, delete: the instance and its generation."""
    made = await gateway.made()
    sandbox = gateway.gateway.directory.get(made["id"])
    assert sandbox is not None
    assert await gateway.run(made["id"], "cat /left 2>/dev/null; echo mine | tee /left") == "mine\n"
    assert (await gateway.client.delete(f"/api/v1/sandbox/{made['id']}")).status_code == 200
    assert (await gateway.get(made["id"]))["status"] == "TERMINATED"
    return str(sandbox.instance_id), sandbox.generation


async def test_twenty_sandboxes_in_two_pods_cost_no_pod_and_no_write(world: World) -> None:
    async with world.gateway(backend=YOUNG) as gateway, pool(world, gateway) as node:
        before = set(node.sidecars)
        lives = [await rollout(gateway) for _ in range(20)]
        assert {pod for pod, _ in lives} <= before == set(node.sidecars)
        assert len(set(lives)) == 20
        assert max(generation for _, generation in lives) >= 10
        assert resources(world) == []
    assert world.server.writes("gateway", namespace=world.namespace) == []
    written = Counter(world.server.writes("controller", namespace=world.namespace))
    del written["patch", "sandboxpools/status"]
    assert written == {("create", "pods"): SIZE}


async def test_a_pod_of_a_cordoned_node_ends_with_its_owner(world: World) -> None:
    async with world.gateway(backend={"young": 0.1}) as gateway, pool(world, gateway) as node:
        made = await gateway.made()
        pod = instance(gateway, made)
        # Without a next node, replacements would come to this one, which plays the scheduler.
        for path, spec in (
            (paths.pools(world.namespace, "default"), {"size": 0}),
            (paths.nodes(node.name), {"unschedulable": True}),
        ):
            await node.client.request("PATCH", path, body={"spec": spec}, content_type=MERGE_PATCH)
        record = Path(node.sidecars[pod].config["state_dir"], "claim.json")
        await until(lambda: json.loads(record.read_text())["last"])
        assert await gateway.run(made["id"], "echo on") == "on\n"
        assert (await gateway.client.delete(f"/api/v1/sandbox/{made['id']}")).status_code == 200
        await until(lambda: pod not in node.sidecars)  # a surplus would stay for a minute


async def test_one_that_lives_longer_has_a_record_and_its_pod_comes_back(world: World) -> None:
    young = {"young": 8.0}  # seconds; the lives further below are shorter
    async with world.gateway(backend=young) as gateway, pool(world, gateway) as node:
        made = await gateway.made()
        pod = instance(gateway, made)
        [record] = await until(lambda: resources(world))
        assert record["spec"]["podName"] == pod
        assert record["spec"]["generation"] == 1
        # Another one is started, as for every sandbox that stays.
        await until(lambda: len(node.sidecars) == SIZE + 1)
        await gateway.client.delete(f"/api/v1/sandbox/{made['id']}")

        def verdict() -> str | None:
            return resources(world)[0].get("status", {}).get("verdict")

        assert await until(verdict) == "deleted"
        await gateway.warm(SIZE + 1)
        assert pod in node.sidecars
        again = [await rollout(gateway) for _ in range(6)]
        assert (pod, 2) in again
        assert len(resources(world)) == 1


async def test_a_pod_that_was_used_up_is_replaced(world: World) -> None:
    async with world.gateway(backend=YOUNG) as gateway, pool(world, gateway, maxUses=2) as node:
        before = set(node.sidecars)
        lives = []
        for _ in range(5):
            await gateway.warm(1)
            lives.append(await rollout(gateway))
        assert max(generation for _, generation in lives) == 2
        assert len({pod for pod, _ in lives}) >= 3
        await until(lambda: not before <= set(node.sidecars))
        await gateway.warm(SIZE)
    assert world.server.writes("gateway", namespace=world.namespace) == []


async def test_a_reset_that_fails_ends_the_pod(world: World) -> None:
    """Its sidecar cannot go on without the executor, and ends itself."""
    async with world.gateway() as gateway, pool(world, gateway) as node:
        made = await gateway.made()
        pod = instance(gateway, made)
        os.kill(executor_of(node.sidecars[pod].config["state_dir"]), 19)
        answer = await gateway.client.delete(f"/api/v1/sandbox/{made['id']}")
        assert answer.status_code == 200
        assert (await gateway.get(made["id"]))["status"] == "TERMINATED"
        os.kill(executor_of(node.sidecars[pod].config["state_dir"]), 9)
        await until(lambda: pod not in node.sidecars, seconds=60)
        await gateway.warm(SIZE)
        assert len(node.sidecars) == SIZE


async def test_a_pod_goes_back_to_the_tenant_that_used_it(world: World) -> None:
    async with world.gateway(api_keys=KEYS) as gateway, pool(world, gateway) as node:
        used = [await gateway.made() for _ in range(SIZE)]
        pods = {instance(gateway, made) for made in used}
        for made in used:
            await gateway.client.delete(f"/api/v1/sandbox/{made['id']}")
        await gateway.warm(SIZE)
        gateway.client.headers["Authorization"] = "Bearer other"
        made = await gateway.made(wait_seconds=25)
        assert instance(gateway, made) not in pods
        assert await gateway.run(made["id"], "cat /left 2>/dev/null; echo on") == "on\n"
        assert node.sidecars


async def test_every_gateway_answers_for_one_that_had_no_record(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        world.gateway("b") as b,
        world.gateway("a", peers=f"localhost:{b.url.rpartition(':')[2]}") as a,
        pool(world, a, b),
    ):
        made = await a.made()
        pod = instance(a, made)
        await a.client.delete(f"/api/v1/sandbox/{made['id']}")
        with monkeypatch.context() as longer:
            longer.setattr(sandbox_waits, "NEW_PATIENCE", 50.0)  # than an answer takes on a loaded machine
            began = time.monotonic()
            told = await b.is_ended_somehow(made["id"])
            assert told["status"] == "TERMINATED"
            assert time.monotonic() - began < sandbox_waits.NEW_PATIENCE, "it waited for a record"
        # What gateway a reset is offered by gateway b, at its next generation: of the first, b may not know the claim.
        await until(lambda: (slot := b.gateway.supply.slots.get(pod)) is not None and slot.generation == 2)
        await b.warm(SIZE)
        for _ in range(SIZE):
            again = await b.made()
            assert again["poolHit"] is True
            if instance(b, again) == pod:
                break
        else:
            raise AssertionError("the other gateway does not offer the pod")
    async with world.gateway("c") as c, world.gateway("d", peers=f"localhost:{c.url.rpartition(':')[2]}"):
        assert (await c.client.get(f"/api/v1/sandbox/{made['id']}")).status_code in (404, 503)
    assert not [one for one in resources(world) if one["spec"].get("sandboxId") == made["id"]]


async def test_a_gateway_that_starts_later_asks_the_others_for_the_verdict(world: World) -> None:
    async with world.gateway("a") as a, pool(world, a):
        made = await a.made()
        await a.client.delete(f"/api/v1/sandbox/{made['id']}")
        async with world.gateway("b", peers=f"localhost:{a.url.rpartition(':')[2]}") as b:
            assert (await b.is_ended_somehow(made["id"]))["status"] == "TERMINATED"


async def test_an_exposed_sandbox_gets_its_record_at_once(world: World) -> None:
    async with world.gateway() as gateway, pool(world, gateway):
        made = await gateway.made()
        answer = await gateway.client.post(f"/api/v1/sandbox/{made['id']}/expose", json={"port": 8000})
        assert answer.status_code == 200, answer.text
        [record] = resources(world)
        assert record["spec"]["sandboxId"] == made["id"]
        await gateway.client.delete(f"/api/v1/sandbox/{made['id']}")
        await until(lambda: resources(world)[0].get("status", {}).get("verdict") == "deleted")


def executor_of(state_dir: str) -> int:
    """The executor's process id: the child of the sidecar whose configuration is there."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes().split(b"\0")
            children = (path / "task" / path.name / "children").read_text().split()
        except OSError:
            continue
        if f"{state_dir}/config.json".encode() in command and children:
            return int(children[0])
    raise AssertionError("its sidecar does not run")
