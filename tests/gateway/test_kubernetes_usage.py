"""Usage over a real API server: each sandbox counts once, whichever gateway made, ended or forgot it."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sandlot_gateway.backends.kubernetes.backend import KubernetesBackend
from sandlot_gateway.core.usage import Document, day_of
from sandlot_gateway.core.usage_source import Source
from sandlot_kube import paths

from tests import plain_http
from tests.gateway.kubernetes_world import FIELDS, NEEDS_API_SERVER, TEMPLATE, Running, World
from tests.ports import free_port
from tests.usage import by_run, full_document, seconds_of
from tests.waiting import until

pytestmark = NEEDS_API_SERVER

# As if the minutes of ends were long ago; a record comes after a second.
SOON = {"young": 1.0, "usage_settles": 0.0, "usage_records_settle": -120.0, "usage_in_sync": 0.0}
A_SECOND = 1.01  # to which records tell times


async def usage(gateway: Running) -> dict[str | None, dict[str, Any]]:
    answer = await gateway.client.get("/api/v1/usage")
    assert answer.status_code == 200, answer.text
    return by_run(answer.json())


def records(world: World) -> list[dict[str, Any]]:
    return world.server.call("GET", paths.sandboxes(world.namespace))["items"]


async def test_gateways_agree_on_each_sandbox_also_when_its_record_is_gone(world: World) -> None:
    kubelet = world.kubelet
    async with world.gateway("a", backend=SOON) as one, world.gateway("b", backend=SOON) as other:
        await kubelet.pod(TEMPLATE, pool="default")
        await kubelet.pod(TEMPLATE, pool="default", reused=True)
        for gateway in (one, other):
            await gateway.warm(2)
        warm = [await one.made(run="warm") for _ in range(2)]  # one in a pod that is reused
        cold = await other.made(run="cold", cpu_cores=2.0)
        for run, count in (("warm", 2), ("cold", 1)):
            await until(lambda run=run, count=count: counts(one, run, count), pause=0.1)

        def all_recorded() -> bool:
            return len(records(world)) == 3

        await until(all_recorded, pause=0.1)
        for made in (*warm, cold):
            assert (await other.client.delete(f"/api/v1/sandbox/{made['id']}")).status_code == 200
        await until(lambda: all(one.get("status", {}).get("endedAt") for one in records(world)), pause=0.1)
        shown = {made["id"]: await other.get(made["id"]) for made in (*warm, cold)}
        lasted = {
            "warm": sum(seconds_of(shown[made["id"]]) for made in warm),
            "cold": 2 * seconds_of(shown[cold["id"]]),
        }

        async def check(gateway: Running) -> None:
            rows = await usage(gateway)
            assert {run: row["sandboxes"] for run, row in rows.items()} == {"warm": 2, "cold": 1}
            for run, seconds in lasted.items():
                assert rows[run]["core_seconds"] == pytest.approx(seconds, abs=2 * A_SECOND)

        for gateway in (one, other):
            await until(lambda gateway=gateway: settled(gateway, count=3), pause=0.1)
            await check(gateway)
        # Both count what has ended, and at the same time.
        for _ in range(2):
            await asyncio.gather(*(gateway.gateway.accounts.fold() for gateway in (one, other)))
        for gateway in (one, other):
            await check(gateway)
        for record in records(world):
            world.server.call("DELETE", paths.sandboxes(world.namespace, record["metadata"]["name"]))
        for gateway in (one, other):
            await until(lambda gateway=gateway: all(is_forgotten(gateway, one) for one in shown), pause=0.1)
            await check(gateway)
    async with world.gateway("c", backend=SOON) as third:
        await check(third)


@pytest.mark.parametrize("ended", [False, True], ids=["while it runs", "once it has ended"])
async def test_one_whose_record_is_deleted_counts_once(world: World, ended: bool) -> None:
    late = {**SOON, "usage_records_settle": 600.0}
    async with world.gateway("a", backend=late) as one, world.gateway("b", backend=late) as other:
        await world.kubelet.pod(TEMPLATE, pool="default")
        await one.warm()
        made = await one.made(run="by-hand")
        await until(lambda: len(records(world)) == 1, pause=0.1)
        await until(lambda: other.gateway.directory.get(made["id"]))
        if ended:
            await other.client.delete(f"/api/v1/sandbox/{made['id']}")
            for gateway in (one, other):
                await until(lambda gateway=gateway: settled(gateway, count=1), pause=0.1)
                await gateway.gateway.accounts.fold()
        world.server.call("DELETE", paths.sandboxes(world.namespace, made["id"]))
        for gateway in (one, other):
            await gateway.is_ended_somehow(made["id"])
            await until(lambda gateway=gateway: is_forgotten(gateway, made["id"]), pause=0.1)
        lasted = seconds_of(await one.get(made["id"]))
        for _ in range(2):
            await asyncio.gather(*(gateway.gateway.accounts.fold() for gateway in (one, other)))
        for gateway in (one, other):
            await until(lambda gateway=gateway: counts(gateway, "by-hand", 1), pause=0.1)
            row = (await usage(gateway))["by-hand"]
            assert row["core_seconds"] == pytest.approx(lasted, abs=2 * A_SECOND)


async def test_full_documents_and_many_are_kept(world: World) -> None:
    async with world.gateway("a") as one:
        store, today, full = one.gateway.backend.usage.store, day_of(time.time()), full_document()
        await store.change(Source(today, "full"), lambda there: full)
        small = [Source(today - number, "small") for number in range(10)]  # more than a page of the list
        for source in small:
            await store.change(source, lambda there: Document([1]))
        found: dict[Source, Document] = {}
        await store.load(since=today - 9, each=found.__setitem__)
        assert found == {Source(today, "full"): full} | {source: Document([1]) for source in small}


def is_forgotten(gateway: Running, sandbox_id: str) -> bool:
    """Whether the gateway's watch has shown that the resource is gone."""
    backend = gateway.gateway.backend
    assert isinstance(backend, KubernetesBackend)
    return backend._records._known.name_of(sandbox_id) is None


async def counts(gateway: Running, run: str, count: int) -> bool:
    return (await usage(gateway)).get(run, {}).get("sandboxes") == count


def settled(gateway: Running, *, count: int) -> bool:
    """Whether the gateway's watch has shown this many records, all of them with their end."""
    recorded = list(gateway.gateway.backend.usage.recorded())
    return len(recorded) == count and all(one.end is not None for one in recorded)


@asynccontextmanager
async def killed_gateway(
    world: World, name: str, *, webhook_port: int
) -> AsyncIterator[tuple[Any, asyncio.subprocess.Process]]:
    """A client of a gateway process, and the process, which is killed at the end."""
    port = free_port()
    world.kubelet.webhook = f"http://127.0.0.1:{webhook_port}/internal/sidecar"
    for _ in range(2):  # which the gateway finds at its start
        await world.kubelet.pod(TEMPLATE, pool="default", reused=True)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sandlot_gateway", "--backend", "kubernetes"),
        *("--port", str(port), "--webhook-port", str(webhook_port), "--api-keys", "key:alpha::operate"),
        *("--state-dir", str(world.directory / name), "--key-file", str(world.directory / "master")),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "KUBECONFIG": str(world.kubeconfig)},
    )
    try:
        assert process.stdout is not None
        assert (await asyncio.wait_for(process.stdout.readline(), 60)).startswith(b"sandlot: ready")
        headers = {"Authorization": "Bearer key"}
        base = f"http://127.0.0.1:{port}"
        async with plain_http.async_client(base_url=base, headers=headers, timeout=60) as client:
            yield client, process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_killed_gateway_counts_what_has_no_record_when_it_comes_back(world: World) -> None:
    webhook_port = free_port()
    async with killed_gateway(world, "a", webhook_port=webhook_port) as (client, process):

        async def made() -> dict[str, Any]:
            answer = await client.post("/api/v1/sandbox", json={**FIELDS, "run": "young", "wait_seconds": 20})
            assert answer.json()["status"] == "RUNNING", answer.text
            return answer.json()

        ended = await made()
        assert (await client.delete(f"/api/v1/sandbox/{ended['id']}")).status_code == 200
        shown = (await client.get(f"/api/v1/sandbox/{ended['id']}")).json()
        through = await made()
        assert ended["poolHit"]
        assert through["poolHit"]
        process.kill()
        await process.wait()
    # So that it does not move what has ended before it stops.
    slow = {"young": 600.0, "usage_settles": 3600.0}
    async with world.gateway("a", backend=slow, webhook_port=webhook_port) as again:
        assert records(world) == []
        await until(lambda: counts(again, "young", 2), pause=0.1)
        assert (await again.client.delete(f"/api/v1/sandbox/{through['id']}")).status_code == 200
        lasted = seconds_of(shown) + seconds_of(await again.get(through["id"]))
        for _ in range(2):
            row = (await usage(again))["young"]
            assert (row["sandboxes"], row["core_seconds"]) == (2, pytest.approx(lasted, abs=0.01))
            await again.gateway.accounts.fold()
        await asyncio.gather(*(sidecar.end() for sidecar in world.kubelet.sidecars.values()))
    # It has written what was in its journal as it left.
    async with world.gateway("b") as other:
        row = (await usage(other))["young"]
        assert (row["sandboxes"], row["core_seconds"]) == (2, pytest.approx(lasted, abs=0.01))
