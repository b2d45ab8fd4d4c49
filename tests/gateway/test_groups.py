"""Groups of creates: all of them or none, whoever else waits, and whatever becomes of a member or of the caller."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from sandlot import AsyncClient, AsyncSandbox, Busy, SandboxLost
from sandlot_gateway.core.backend import BackendError

from tests.gateway.conftest import KEY, Running, running
from tests.gateway.group_calls import HOST, ask_for_group, create_group, ids_of, nothing_left
from tests.gateway.warm_pool import warmed
from tests.waiting import until


async def test_a_group_of_several_templates_comes_as_a_whole_and_goes_as_one(box: Running) -> None:
    members = [{**HOST, "count": 2, "labels": ["a"]}, {**HOST, "cpu_cores": 2.0, "name": "big"}]
    answer = await ask_for_group(box, members)
    assert answer.status_code == 201, answer.text
    group = answer.json()
    assert group["status"] == "RUNNING"
    assert group["idempotency_key"] is None
    assert [member["cpuCores"] for member in group["sandboxes"]] == [1.0, 1.0, 2.0]
    assert {member["status"] for member in group["sandboxes"]} == {"RUNNING"}
    assert {member["group"] for member in group["sandboxes"]} == {group["id"]}
    assert all(member["gatewayAuth"]["token"] for member in group["sandboxes"])
    again = (await box.client.get(f"/api/v1/group/{group['id']}")).json()
    assert again["status"] == "RUNNING"
    assert ids_of(again) == ids_of(group)
    listed = (await box.client.get("/api/v1/sandbox", params={"group": group["id"]})).json()
    assert {one["id"] for one in listed["sandboxes"]} == set(ids_of(group))
    other = box.as_tenant("key-b")
    assert (await box.client.get(f"/api/v1/group/{group['id']}", headers=other)).status_code == 404
    assert (await box.client.delete(f"/api/v1/group/{group['id']}", headers=other)).status_code == 404
    deleted = (await box.client.delete(f"/api/v1/group/{group['id']}")).json()
    assert set(deleted["succeeded"]) == set(ids_of(group))
    assert (await box.client.get(f"/api/v1/group/{group['id']}")).json()["status"] == "ENDED"
    await nothing_left(box)


async def test_a_warm_group_does_not_wait_for_one_that_collects(state_dir, machine) -> None:
    async with running(state_dir, machine) as box:
        await warmed(box)
        machine.room = len(machine.instances)
        waits = asyncio.create_task(
            ask_for_group(box, [{**HOST, "cpu_cores": 3.0, "count": 2}], deadline_seconds=60)
        )
        await until(lambda: box.gateway.supply.waiting == 2)
        group = await create_group(box, 3)
        assert [member["poolHit"] for member in group["sandboxes"]] == [True] * 3
        waits.cancel()


async def test_what_has_no_room_in_time_leaves_nothing_and_says_when_to_ask_again(state_dir, machine) -> None:
    machine.room = 2
    async with running(state_dir, machine, spare_seconds=0.0) as box:
        answer = await ask_for_group(box, [{**HOST, "count": 3}], deadline_seconds=0.5, wait_seconds=25)
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) > 0
        assert "whole group" in answer.json()["detail"]
        await nothing_left(box)
        counts = await box.metrics()  # as if no sandbox had been asked for
        assert 'sandlot_sandbox_ends_total{verdict="deleted"} 0.0' in counts
        assert 'sandlot_creates_total{outcome="failed",source="cold"} 0.0' in counts
        assert len((await create_group(box, 2))["sandboxes"]) == 2  # the room is free again


async def test_two_groups_that_fit_only_one_after_the_other_both_come(state_dir, machine) -> None:
    machine.room = 4
    async with running(state_dir, machine, spare_seconds=0.0) as box:
        asked = [asyncio.create_task(create_group(box, 3, wait_seconds=25)) for _ in range(2)]
        done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        first = done.pop().result()
        assert len(box.machine.claimed()) == 3  # the other one holds none
        await box.client.delete(f"/api/v1/group/{first['id']}")
        groups = await asyncio.gather(*asked)
        assert {len(group["sandboxes"]) for group in groups} == {3}


async def test_a_member_that_dies_ends_the_group(box: Running) -> None:
    await warmed(box)
    accepting, go_on = asyncio.Event(), asyncio.Event()

    async def slow(claim: dict[str, Any]) -> None:
        accepting.set()
        await go_on.wait()

    slow_one, *_ = box.machine.sidecars.values()
    slow_one.before_claim = slow
    asked = asyncio.create_task(create_group(box, 3))
    await accepting.wait()
    await until(lambda: len(box.machine.claimed()) == 2)
    lost = box.machine.claimed()[0]
    await until(lambda: len(box.gateway.directory.list(tenant="alpha", status="RUNNING").sandboxes) == 2)
    box.backend.lose(lost.instance_id)
    group = await asked
    assert (group["status"], group["verdict"]) == ("FAILED", "sidecar_lost")
    assert group["sandboxes"] == []
    go_on.set()
    await until(lambda: len(box.machine.claimed()) <= 1)  # the lost one, whose process the stub keeps
    await until(lambda: box.gateway.directory.total_live == 0)


async def test_a_quota_counts_the_whole_group(box: Running) -> None:
    never = await ask_for_group(box, [{**HOST, "count": 3}], key="key-small")
    assert never.status_code == 422
    assert never.json()["errors"][0]["param"] == "members"
    made = await ask_for_group(box, [{**HOST, "count": 1}], key="key-small")
    assert made.status_code == 201
    later = await ask_for_group(box, [{**HOST, "count": 2}], key="key-small")
    assert later.status_code == 429
    assert later.headers["retry-after"]
    assert len(box.machine.claimed()) == 1


async def test_a_burst_that_a_group_exceeds_is_named(state_dir, machine) -> None:
    path = state_dir / "quotas.json"
    path.write_text(json.dumps({"alpha": {"creates_per_second": 0.01, "creates_burst": 2}}))
    async with running(state_dir, machine, quotas_file=path) as box:
        answer = await ask_for_group(box, [{**HOST, "count": 3}])
        assert answer.status_code == 422
        assert "creates_burst" in answer.json()["detail"]
        assert len((await create_group(box, 2))["sandboxes"]) == 2
        assert (await ask_for_group(box, [HOST])).status_code == 429


@pytest.mark.parametrize(
    ("member", "field"),
    [
        ({"docker_image": "localhost/x"}, "members.1.docker_image"),
        ({**HOST, "idempotency_key": "k"}, "members.1"),
        ({**HOST, "count": 0}, "members.1.count"),
        ({**HOST, "run": "other"}, "members"),
        ({**HOST, "run_id": "other"}, "members"),
        ({**HOST, "count": 512}, "members"),
    ],
)
async def test_a_wrong_member_is_named(box: Running, member: dict[str, Any], field: str) -> None:
    answer = await ask_for_group(box, [HOST, member])
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["param"] == field
    assert box.gateway.directory.total_live == 0


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_caller_that_leaves_for_good_leaves_nothing(state_dir, machine, key: str | None) -> None:
    async with running(state_dir, machine, orphan_grace=0.2) as box:
        machine.hold_ready = asyncio.Event()
        body = {"members": [{**HOST, "count": 3}], "idempotency_key": key, "wait_seconds": 0.3}
        await _hang_up(box, body)
        await until(lambda: box.gateway.directory.total_live == 0)
        machine.hold_ready.set()
        await nothing_left(box)


async def test_a_caller_that_leaves_is_noticed_while_its_answer_is_held(box: Running) -> None:
    box.machine.hold_ready = asyncio.Event()
    earlier = asyncio.create_task(ask_for_group(box, [HOST], key="key-b", wait_seconds=25))
    await until(lambda: box.gateway.directory.total_live == 1)
    await _hang_up(box, {"members": [{**HOST, "count": 3}], "wait_seconds": 25})
    await until(lambda: box.gateway.directory.total_live == 1)
    assert not earlier.done()  # it is held as long as the other would have been
    box.machine.hold_ready.set()
    made = (await earlier).json()
    await box.client.delete(f"/api/v1/group/{made['id']}", headers=box.as_tenant("key-b"))
    await nothing_left(box)


async def _hang_up(box: Running, body: dict[str, Any]) -> None:
    host, port = box.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    data = json.dumps(body).encode()
    head = f"POST /api/v1/group HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer key-a\r\nContent-Length: {len(data)}\r\n"
    before = box.gateway.directory.total_live
    writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + data)
    await until(lambda: box.gateway.directory.total_live == before + 3)
    writer.close()
    await writer.wait_closed()


async def test_a_group_that_waits_can_be_deleted(box: Running) -> None:
    box.machine.hold_ready = asyncio.Event()
    asked = asyncio.create_task(create_group(box, 2, idempotency_key="k", wait_seconds=25))
    await until(lambda: box.gateway.supply.waiting == 2)
    listed = (await box.client.get("/api/v1/sandbox")).json()["sandboxes"]
    answer = await box.client.delete(f"/api/v1/group/{listed[0]['group']}")
    assert answer.status_code == 200, answer.text
    assert ((await asked)["status"], (await asked)["verdict"]) == ("FAILED", "deleted")
    box.machine.hold_ready.set()
    await nothing_left(box)
    assert (await create_group(box, 2, idempotency_key="k"))["status"] == "RUNNING"


async def test_the_sdk_makes_waits_for_and_deletes_a_group(box: Running) -> None:
    box.machine.hold_ready = asyncio.Event()
    async with AsyncClient(url=box.url, api_key=KEY) as client:
        kinds = [{"image": "host", "cpu": 2.0}, {"count": 2, "name": "small"}]
        asked = asyncio.create_task(AsyncSandbox.create_group(kinds, client=client, labels=["g"]))
        await until(lambda: box.gateway.supply.waiting == 3)
        assert await AsyncSandbox.list(labels=["g"], group="another", client=client) == []
        box.machine.hold_ready.set()
        async with await asked as group:
            assert [one.info.cpu for one in group] == [2.0, 1.0, 1.0]
            assert [one.info.name for one in group][1:] == ["small", "small"]
            result = await group[2].exec(["hello"])
            assert result.ok
            listed = await AsyncSandbox.list(group=group.id, client=client)
            assert {info.id for info in listed} == {one.id for one in group}
        await nothing_left(box)


async def test_a_group_of_the_sdk_is_of_the_run_of_its_environment(box: Running, monkeypatch) -> None:
    begun = await box.client.put("/api/v1/runs/r1", json={"holder": "one", "grace_seconds": 60})
    epoch = begun.json()["epoch"]
    monkeypatch.setenv("SANDLOT_RUN_ID", f"r1@{epoch}")
    async with (
        AsyncClient(url=box.url, api_key=KEY) as client,
        await AsyncSandbox.create_group(2, client=client) as group,
    ):
        assert [(one.info.run, one.info.run_epoch) for one in group] == [("r1", epoch)] * 2


async def test_the_sdk_tells_a_group_without_room_from_a_lost_one(state_dir, machine) -> None:
    machine.room = 1
    async with (
        running(state_dir, machine, spare_seconds=0.0) as box,
        AsyncClient(url=box.url, api_key=KEY) as client,
    ):
        with pytest.raises(Busy, match="whole group"):
            await AsyncSandbox.create_group(2, client=client, wait=1.0)
        machine.room = None
        machine.fail_launch = [BackendError("no such image", error_type="IMAGE_PULL_FAILED")]
        with pytest.raises(SandboxLost, match="no such image"):
            await AsyncSandbox.create_group(2, client=client, wait=20.0)
        with pytest.raises(ValueError, match="idle: not an argument"):
            await AsyncSandbox.create_group(2, client=client, idle=1)
        await nothing_left(box)
