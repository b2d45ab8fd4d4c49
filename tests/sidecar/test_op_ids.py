"""An op's id: it runs once, however often it is asked for, and its result is kept for a while."""

from __future__ import annotations

import asyncio

import pytest

from tests.sidecar.calls import has_status
from tests.sidecar.support import Sidecar
from tests.waiting import until

pytestmark = pytest.mark.root


async def test_the_same_id_attaches_and_never_runs_twice(box: Sidecar) -> None:
    body = {"command": "echo x >> /tmp/ran; echo out; sleep 0.5; echo more", "id": "once"}
    first, second = await asyncio.gather(*(box.call("POST", "/v1/ops", json=body) for _ in range(2)))
    assert {first.headers["x-sandlot-attached"], second.headers["x-sandlot-attached"]} == {"0", "1"}
    assert first.content == second.content
    again = await box.call("POST", "/v1/ops", json=body)
    assert again.content == first.content
    assert (await box.exec("cat /tmp/ran"))["stdout"] == "x\n"
    conflict = await box.call("POST", "/v1/ops", json={**body, "command": "true"})
    assert conflict.status_code == 409
    assert conflict.json()["error"] == "op_conflict"


async def test_exec_with_an_op_id_is_safe_to_retry(box: Sidecar) -> None:
    first = await box.exec("echo x >> /tmp/n; date +%N", op="retry")
    second = await box.exec("echo x >> /tmp/n; date +%N", op="retry")
    assert first == second
    assert (await box.exec("cat /tmp/n"))["stdout"] == "x\n"
    other = await box.call("POST", "/v1/exec", json={"command": "true"}, headers={"X-Sandlot-Op": "retry"})
    assert other.status_code == 409


async def test_results_expire_and_never_run_again(make) -> None:
    box = await make(claim={}, ops={"result_ttl": 0.3})
    await box.exec("echo x >> /tmp/n", op="old")
    await until(lambda: has_status(box, "/v1/ops/old", 410))
    answer = await box.call(
        "POST", "/v1/exec", json={"command": "echo x >> /tmp/n"}, headers={"X-Sandlot-Op": "old"}
    )
    assert answer.status_code == 410
    assert answer.json()["error"] == "expired"
    assert (await box.exec("cat /tmp/n"))["stdout"] == "x\n"


async def test_results_are_bounded_by_size(make) -> None:
    box = await make(claim={}, ops={"result_bytes": 100_000})
    for number in range(5):
        await box.exec("head -c 40000 /dev/zero", op=f"big-{number}")
    known = {op["op_id"] for op in (await box.call("GET", "/v1/ops")).json()["ops"]}
    assert "big-0" not in known
    assert "big-4" in known
    assert (await box.call("GET", "/v1/ops/big-0")).status_code == 410
