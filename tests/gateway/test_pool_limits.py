"""How many pools a tenant may have, and what they keep warm together, also when many are asked for at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from sandlot_gateway.control.pool_limits import MOST_POOLS

from tests.gateway.conftest import API, OPERATOR, Running, running
from tests.gateway.machine import Machine
from tests.waiting import until

ONE_MORE = "one-more"


@pytest.fixture
async def shared(state_dir: Path, machine: Machine) -> AsyncIterator[Running]:
    keys = f"key-a:alpha,key-b:beta,key-few:few:2,{OPERATOR}:ops::operate"
    async with running(state_dir, machine, api_keys=keys) as box:
        yield box


async def put(
    box: Running, name: str, *, key: str = "key-a", size: int | None = 0, **fields: object
) -> httpx.Response:
    body = {"size": size, **fields}
    return await box.client.put(f"{API}/pools/{name}", json=body, headers=box.as_tenant(key))


async def delete(box: Running, name: str) -> int:
    return (await box.client.delete(f"{API}/pools/{name}")).status_code


async def filled(box: Running) -> None:
    """Alpha has as many pools as it may have."""
    for number in range(MOST_POOLS):
        made = await put(box, f"own-{number}")
        assert made.status_code == 200, made.text


async def test_a_tenant_gets_no_pool_beyond_the_bound_and_keeps_those_it_has(shared: Running) -> None:
    await filled(shared)
    refused = await put(shared, ONE_MORE)
    assert (refused.status_code, refused.json()["errors"][0]["param"]) == (422, "name"), refused.text
    assert refused.json()["detail"] == (
        f"name: tenant 'alpha' has {MOST_POOLS} pools, and with the role use may have {MOST_POOLS}; "
        "change or delete one of them, or ask the operator for another"
    )
    assert (await put(shared, ONE_MORE, key="key-b")).status_code == 200  # each tenant has its own
    assert (await put(shared, "own-0", size=1)).json()["size"] == 1
    assert (await put(shared, "own-0", size=None, cpu_cores=2)).json()["cpu_cores"] == 2
    assert await delete(shared, "own-1") == 200
    assert (await put(shared, "another")).status_code == 200
    assert (await put(shared, "yet-another")).status_code == 422


async def test_an_operator_gives_a_tenant_more_pools_which_it_may_change(shared: Running) -> None:
    await filled(shared)
    given = await put(shared, "given", key=OPERATOR, owner="alpha")
    assert (given.status_code, given.json()["owner"]) == (200, "alpha"), given.text
    assert (await put(shared, "common", key=OPERATOR)).json()["owner"] is None
    assert (await put(shared, "given", size=1)).json()["size"] == 1
    assert await delete(shared, "own-0") == 200
    assert f"has {MOST_POOLS} pools" in (await put(shared, ONE_MORE)).json()["detail"]
    assert await delete(shared, "given") == 200
    assert (await put(shared, ONE_MORE)).status_code == 200


async def test_requests_at_once_do_not_pass_the_bound_together(shared: Running, machine: Machine) -> None:
    machine.hold_pools = asyncio.Event()
    asked = [asyncio.create_task(put(shared, f"own-{number}")) for number in range(MOST_POOLS + 3)]
    await until(lambda: sum(each.done() for each in asked) == 3)
    again = machine.asked_pools[0]
    changed = asyncio.create_task(put(shared, again, cpu_cores=2))
    # It is no pool beside those that are being made.
    await until(lambda: machine.asked_pools.count(again) == 2)
    machine.hold_pools.set()
    statuses = [answer.status_code for answer in await asyncio.gather(*asked, changed)]
    assert [statuses.count(status) for status in (200, 422)] == [MOST_POOLS + 1, 3]


async def test_requests_at_once_do_not_pass_a_quota_together(shared: Running, machine: Machine) -> None:
    machine.hold_pools = asyncio.Event()
    asked = [asyncio.create_task(put(shared, f"own-{number}", key="key-few", size=1)) for number in range(3)]
    await until(lambda: sum(each.done() for each in asked) == 1)
    machine.hold_pools.set()
    answers = await asyncio.gather(*asked)
    assert sorted(answer.status_code for answer in answers) == [200, 200, 422]
    (refused,) = [answer for answer in answers if answer.status_code == 422]
    assert refused.json()["errors"][0]["param"] == "size"


async def test_a_pool_that_the_backend_refuses_does_not_count(shared: Running) -> None:
    broken = await put(shared, "own", key=OPERATOR, size=2, owner="few", image="broken")
    assert (broken.status_code, broken.json()["errors"][0]["param"]) == (422, "image"), broken.text
    assert (await put(shared, "another", key="key-few", size=2)).status_code == 200
