"""Whose a warm pool is: what keys of each role see and change, and which creates take from it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sandlot_contract.template import Template
from sandlot_gateway.core.instances import PoolSpec

from tests.gateway.conftest import Running, running
from tests.gateway.machine import Machine
from tests.waiting import until

POOLS = "/api/v1/pools"
KEYS = "key-a:alpha,key-b:beta,key-few:few:2,boss,key-ops:ops::operate,bare-user:default::use"


@pytest.fixture
async def shared(state_dir: Path, machine: Machine) -> AsyncIterator[Running]:
    """A gateway of two tenants and an operator, `boss`."""
    async with running(state_dir, machine, api_keys=KEYS) as box:
        yield box


async def put(box: Running, key: str, name: str, **fields: Any) -> httpx.Response:
    return await box.client.put(f"{POOLS}/{name}", json={"size": 1, **fields}, headers=box.as_tenant(key))


async def names(box: Running, key: str) -> list[str]:
    answer = await box.client.get(POOLS, headers=box.as_tenant(key))
    return sorted(pool["name"] for pool in answer.json()["pools"])


async def made(box: Running, key: str, **fields: Any) -> dict[str, Any]:
    answer = await box.client.post(
        "/api/v1/sandbox", json={"docker_image": "host", **fields}, headers=box.as_tenant(key)
    )
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_a_pool_is_its_makers_and_an_operators_is_shared(shared: Running) -> None:
    own = await put(shared, "key-a", "own")
    assert (own.status_code, own.json()["owner"]) == (200, "alpha"), own.text
    common = await put(shared, "boss", "common")
    assert common.json()["owner"] is None
    given = await put(shared, "key-ops", "given", owner="beta")
    assert given.json()["owner"] == "beta"
    assert await names(shared, "key-a") == ["common", "own"]
    assert await names(shared, "key-b") == ["common", "given"]
    assert await names(shared, "bare-user") == ["common"]
    assert await names(shared, "boss") == ["common", "given", "own"]
    stats = (await shared.client.get("/api/v1/stats", headers=shared.as_tenant("key-b"))).json()
    assert sorted(pool["name"] for pool in stats["pools"]) == ["common", "given"]


async def test_a_key_that_may_only_use_changes_and_deletes_no_others_pool(shared: Running) -> None:
    await put(shared, "key-a", "own")
    await put(shared, "boss", "common")
    taken = await put(shared, "key-b", "own", size=0)
    assert (taken.status_code, taken.json()["errors"][0]["param"]) == (403, "name"), taken.text
    assert "alpha" not in taken.text
    refused = await put(shared, "key-b", "common", size=0)
    assert refused.status_code == 403
    assert "role operate" in refused.json()["detail"]
    for owner in ("alpha", ""):
        other = await put(shared, "key-b", "new", owner=owner)
        assert (other.status_code, other.json()["errors"][0]["param"]) == (403, "owner"), other.text
    as_other = shared.as_tenant("key-b")
    # Nothing tells another tenant's pool from one that does not exist; a shared one is no secret.
    hidden = await shared.client.delete(f"{POOLS}/own", headers=as_other)
    assert (hidden.status_code, hidden.json()["detail"]) == (404, "no pool 'own'")
    assert (await shared.client.delete(f"{POOLS}/common", headers=as_other)).status_code == 403
    assert {pool.size for pool in shared.machine.pools.values()} == {1}
    assert await names(shared, "boss") == ["common", "own"]
    assert (await put(shared, "key-a", "own", size=2)).json()["size"] == 2
    assert (await shared.client.delete(f"{POOLS}/own", headers=shared.as_tenant("key-a"))).status_code == 200
    assert (
        await shared.client.delete(f"{POOLS}/common", headers=shared.as_tenant("boss"))
    ).status_code == 200


async def test_an_operator_changes_every_pool_and_says_whose_it_is(shared: Running) -> None:
    await put(shared, "key-a", "own")
    kept = await put(shared, "boss", "own", size=2)
    assert (kept.json()["owner"], kept.json()["size"]) == ("alpha", 2)
    assert (await put(shared, "boss", "own", owner="beta")).json()["owner"] == "beta"
    assert (await put(shared, "boss", "own", owner="")).json()["owner"] is None
    wrong = await put(shared, "boss", "own", owner="not a tenant")
    assert (wrong.status_code, wrong.json()["errors"][0]["param"]) == (422, "owner"), wrong.text


async def test_an_operators_key_reaches_no_other_tenants_sandbox(shared: Running) -> None:
    box = await made(shared, "key-a")
    path = f"/api/v1/sandbox/{box['id']}"
    for key in ("boss", "key-ops"):
        assert (await shared.client.get(path, headers=shared.as_tenant(key))).status_code == 404
        assert (await shared.client.delete(path, headers=shared.as_tenant(key))).status_code == 404
        everything = await shared.client.get("/api/v1/sandbox", headers=shared.as_tenant(key))
        assert everything.json()["sandboxes"] == []


async def test_metrics_name_all_pools_and_are_an_operators(shared: Running) -> None:
    await put(shared, "key-a", "own")
    for key in ("key-a", "key-b", "bare-user"):
        refused = await shared.client.get("/metrics", headers=shared.as_tenant(key))
        assert refused.status_code == 403, key
        assert "own" not in refused.text
        assert "role operate" in refused.json()["detail"]
    for key in ("boss", "key-ops"):
        told = await shared.client.get("/metrics", headers=shared.as_tenant(key))
        assert 'sandlot_pool_size{pool="own"} 1.0' in told.text


async def test_a_tenants_pools_are_no_larger_than_its_limit_of_sandboxes(shared: Running) -> None:
    assert (await put(shared, "key-few", "one", size=1)).status_code == 200
    assert (await put(shared, "key-few", "two", size=1)).status_code == 200
    more = await put(shared, "key-few", "two", size=2)
    assert (more.status_code, more.json()["errors"][0]["param"]) == (422, "size"), more.text


async def test_a_create_takes_nothing_from_another_tenants_pool(shared: Running) -> None:
    await put(shared, "key-a", "own", size=2)
    await until(lambda: shared.gateway.supply.slots.warm.count("own") == 2)
    named = await shared.client.post(
        "/api/v1/sandbox", json={"pool": "own"}, headers=shared.as_tenant("key-b")
    )
    assert (named.status_code, named.json()["errors"][0]["param"]) == (422, "pool"), named.text
    cold = await made(shared, "key-b")
    assert cold["poolHit"] is False
    assert shared.gateway.supply.slots.warm.count("own") == 2
    assert (await made(shared, "key-a"))["poolHit"] is True


async def test_a_waiting_create_is_not_given_what_another_tenants_pool_starts(shared: Running) -> None:
    shared.machine.hold_ready = asyncio.Event()
    await put(shared, "key-a", "own", size=1)
    waiting = asyncio.create_task(made(shared, "key-b"))
    # The start for alpha's pool is not counted on: beta's create has one of its own.
    await until(lambda: shared.machine.launched == 2)
    shared.machine.hold_ready.set()
    assert (await waiting)["poolHit"] is False
    await until(lambda: shared.gateway.supply.slots.warm.count("own") == 1)


async def test_a_tenants_waiting_create_is_given_what_its_own_pool_starts(shared: Running) -> None:
    shared.machine.hold_ready = asyncio.Event()
    await put(shared, "key-a", "own", size=1)
    waiting = asyncio.create_task(made(shared, "key-a"))
    await until(lambda: shared.gateway.supply.waiting == 1)
    shared.machine.hold_ready.set()
    running_on = shared.machine.of_sandbox((await waiting)["id"])
    assert shared.machine.instances[running_on.instance_id].pool == "own"


async def test_pools_of_the_settings_are_shared(state_dir: Path, machine: Machine) -> None:
    async with running(state_dir, machine, api_keys=KEYS, pool="given=1") as box:
        assert box.machine.pools["given"] == PoolSpec("given", Template(image="host"), 1, owner=None)
        assert (await put(box, "key-a", "given")).status_code == 403


async def test_whoami_tells_the_role(shared: Running) -> None:
    roles = {}
    for key in ("key-a", "boss", "key-ops", "bare-user"):
        answer = await shared.client.get("/api/v1/user/whoami", headers=shared.as_tenant(key))
        roles[key] = answer.json()["data"]["scope"]["role"]
    assert roles == {"key-a": "use", "boss": "operate", "key-ops": "operate", "bare-user": "use"}
