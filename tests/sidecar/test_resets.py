"""Resets over the real surface: nothing of an owner is left, or of what the owner did."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from sandlot_sidecar.server import record
from sandlot_sidecar.server.ahead import IDLE

from tests.policies import skip_without_egress_policies
from tests.sidecar.calls import has_running
from tests.sidecar.processes import name_of
from tests.sidecar.support import Sidecar
from tests.waiting import until

pytestmark = pytest.mark.root


def text_of(path: str) -> str:
    return Path(path).read_text()


async def test_a_claim_with_less_memory_can_be_reset(make) -> None:
    """Its /dev/shm is smaller than it was when the sandbox was made, which is no leftover."""
    box = await make(claim={"limits": {"memory": 128 << 20}})
    answer = await box.instance("POST", "/v1/reset", json={"keep_claim": True})
    assert answer.json()["equal"] is True, answer.text
    assert (await box.exec("df -k /dev/shm | tail -1 | tr -s ' ' | cut -d' ' -f2"))["stdout"] == "19664\n"


async def test_a_reset_for_one_owner_never_meets_the_next(make) -> None:
    """It may be late, and by then the instance has been reset and claimed again."""
    box = await make(claim={})
    late = {"keep_claim": False, "generation": 1}
    assert (await box.instance("POST", "/v1/reset", json=late)).json()["generation"] == 2
    answer = await box.instance("POST", "/v1/reset", json=late)
    assert (answer.status_code, answer.json()["error"]) == (409, "stale_generation")
    assert (await box.instance("GET", "/v1/state")).json()["generation"] == 2


async def test_another_tenant_never_gets_it_after_a_reset(make) -> None:
    box = await make(claim={"tenant": "a"})
    document = (await box.instance("POST", "/v1/reset", json={"generation": 1})).json()
    assert (document["phase"], document["bound_to"], document["uses"]) == ("warm", "a", 1)
    record = json.loads(text_of(f"{box.directory}/claim.json"))
    assert (record["claim"], record["bound_to"], record["uses"]) == (None, "a", 1)
    stranger = box.claim_body(sandbox_id="sb-2", tenant="b", generation=2)
    refused = await box.instance("POST", "/v1/claim", json=stranger)
    assert (refused.status_code, refused.json()["error"]) == (409, "bound")
    assert refused.json()["bound_to"] == "a"
    state = await box.claim(sandbox_id="sb-3", tenant="a", generation=2)
    assert (state["sandbox_id"], state["bound_to"], state["uses"]) == ("sb-3", "a", 2)


async def test_reset_is_fresh_again(make) -> None:
    box = await make(claim={"env": {"OLD": "1"}})
    await box.exec(
        "echo x > /root/trace; mkdir -p /var/spool/cron; echo y > /etc/passwd; sleep 99 &", op="before"
    )
    answer = await box.instance("POST", "/v1/reset", json={})
    document = answer.json()
    assert answer.status_code == 200, answer.text
    assert document["equal"] is True
    assert document["proof"]["processes"] == []
    assert document["proof"]["upper_entries"] == 0
    assert (document["generation"], document["phase"], document["sandbox_id"]) == (2, "warm", None)
    assert document["took_ms"] > 0
    event = await box.webhooks.wait("ready", count=2)
    assert event["generation"] == 2
    assert (await box.call("POST", "/v1/exec", json={"command": "true"})).status_code == 409
    box.token = "another-token"
    await box.claim(sandbox_id="sb-2", generation=2)
    result = await box.exec("ls /root/trace; grep -c root /etc/passwd; echo [$OLD]", op="before")
    assert "[]" in result["stdout"]
    assert "No such file" in result["stderr"]
    assert int(result["stdout"].split()[0]) >= 1


async def test_reset_that_keeps_the_claim(make) -> None:
    box = await make(claim={"env": {"K": "v"}, "start_command": "echo started >> /tmp/starts"})
    await box.exec("echo x > /tmp/trace")
    document = (await box.instance("POST", "/v1/reset", json={"keep_claim": True})).json()
    assert (document["phase"], document["sandbox_id"], document["generation"]) == ("claimed", "sb-test", 1)
    assert (await box.exec("ls /tmp/trace; echo $K"))["stdout"] == "v\n"


async def test_reset_ends_what_runs(make) -> None:
    box = await make(claim={})
    running = asyncio.create_task(box.exec("sleep 300", op="runs"))
    await until(lambda: has_running(box, 1))
    await box.instance("POST", "/v1/reset", json={"keep_claim": True})
    assert (await running)["verdict"] == "sandbox_ended"
    assert (await box.exec("echo on"))["stdout"] == "on\n"


async def test_a_reset_takes_the_owner_s_limits_and_network_away(make) -> None:
    box = await make(claim={"limits": {"memory": 64 << 20, "pids": 20, "disk": 1 << 20}, "network": "none"})
    look = (
        "df -B1 --output=size / | tail -1; readlink /proc/self/ns/net; "
        # None of them ends before the last is there, however long a busy machine takes to start them.
        'for i in $(seq 30); do sleep 600 & pids="$pids $!"; done; echo forked; kill $pids'
    )
    shared = os.readlink("/proc/self/ns/net")  # the machine's, in which others make devices meanwhile
    first = (await box.exec(look, shell="sh"))["stdout"].split()
    assert (int(first[0]) <= 1 << 20, first[1] == shared, "forked" in first) == (True, False, False)
    answer = await box.instance("POST", "/v1/reset", json={"keep_claim": False})
    assert answer.json()["equal"] is True, answer.text
    await box.claim()
    second = (await box.exec(look, shell="sh"))["stdout"].split()
    assert int(second[0]) == 64 << 20
    assert second[1] == shared
    assert second[-1] == "forked"
    answer = await box.instance("POST", "/v1/reset", json={"keep_claim": False})
    await box.claim(limits={"disk": 2 << 20}, network="none")
    answer = await box.instance("POST", "/v1/reset", json={"keep_claim": True})
    third = (await box.exec(look, shell="sh"))["stdout"].split()
    assert (int(third[0]) <= 2 << 20, third[1] == shared, third[-1]) == (True, False, "forked")


async def test_a_reset_without_the_claim_takes_its_policy_away(make) -> None:
    box = await make(claim={})
    policy = {"policy": {"allowlist": []}, "allow": True, "rules": []}
    held = await box.instance("PUT", "/v1/egress", json=policy)
    skip_without_egress_policies()
    assert held.status_code == 200, held.text
    reach = "import socket; socket.create_connection(('192.0.2.1', 9), timeout=0.2)"
    for keep in (True, False):
        assert (await box.instance("POST", "/v1/reset", json={"keep_claim": keep})).json()["equal"] is True
        if not keep:
            await box.claim()
        seen = await box.exec(["python3", "-c", reach])
        assert ("PermissionError" in seen["stderr"]) is keep
    assert (await box.instance("GET", "/v1/egress")).json() == {"policy": None, "generation": 1}


async def prepared(box: Sidecar, *, count: int) -> None:
    await until(lambda: box.log().count('"event": "prepared"') == count)


def resets(box: Sidecar) -> list[bool]:
    """Of each reset, whether its generation was prepared."""
    lines = [json.loads(line) for line in box.log().splitlines() if line.startswith("{")]
    return [line["prepared"] for line in lines if line["event"] == "reset"]


async def reset(box: Sidecar) -> None:
    answer = (await box.instance("POST", "/v1/reset", json={})).json()
    assert (answer["equal"], answer["phase"]) == (True, "warm"), answer


def inits(box: Sidecar) -> int:
    return [name_of(pid) for pid in box.tree()].count("init")


async def test_the_next_generation_is_prepared_while_nobody_waits(make) -> None:
    box = await make(claim={})
    await reset(box)
    for count in (1, 3):
        await prepared(box, count=count)
        await box.claim(env={"OLD": "1"}, workdir="/tmp")
        await box.exec("echo x > /root/trace; echo x > /dev/shm/trace; sleep 99 &")
        await reset(box)
        await box.claim()
        seen = await box.exec("ls /root/trace /dev/shm/trace; pwd; echo [$OLD]")
        assert seen["stdout"] == "/\n[]\n"
        await prepared(box, count=count + 1)
        await reset(box)
    assert resets(box) == [False, True, True, True, True]


async def test_it_is_prepared_for_an_owner_who_is_never_idle(make) -> None:
    box = await make(claim={})
    await reset(box)
    await box.claim()
    await box.op("sleep 600", id="long", detach=True)
    await prepared(box, count=1)
    await reset(box)
    assert resets(box) == [False, True]


async def test_nothing_is_prepared_before_the_first_reset(make) -> None:
    """Which a slot for one owner never has."""
    box = await make(claim={})
    await asyncio.sleep(4 * IDLE)
    assert (inits(box), box.log().count('"event": "prepared"')) == (1, 0)


async def test_a_reset_that_keeps_its_owner_builds_anew(make) -> None:
    box = await make(claim={})
    await reset(box)
    await box.claim(limits={"disk": 2 << 20}, workdir="/tmp")
    await prepared(box, count=1)
    answer = await box.instance("POST", "/v1/reset", json={"keep_claim": True})
    assert answer.json()["equal"] is True, answer.text
    assert resets(box) == [False, False]
    size, workdir = (await box.exec("df -B1 --output=size / | tail -1; pwd"))["stdout"].split()
    assert (int(size) <= 2 << 20, workdir) == (True, "/tmp")


async def test_a_restart_during_a_reset_finds_no_owner(make) -> None:
    """The record is written while the executor works: what the reset was to end has ended with its processes."""
    box = await make(claim={})
    await box.exec("echo x > /root/trace")
    await box.kill()
    record.store_next(box.directory, record.load(box.directory))
    await box.start()
    state = (await box.instance("GET", "/v1/state")).json()
    assert (state["phase"], state["generation"], state["sandbox_id"]) == ("warm", 2, None)
    await box.claim(generation=2)
    assert (await box.exec("ls /root/trace"))["exit_code"] != 0
