"""Many ops: so many at once, the others in order, and nothing of them is left."""

from __future__ import annotations

from functools import partial

import pytest

from tests.sidecar.calls import processes_like
from tests.sidecar.support import Sidecar
from tests.waiting import until

pytestmark = pytest.mark.root


async def state(box: Sidecar, op_id: str, wanted: str) -> bool:
    return (await box.call("GET", f"/v1/ops/{op_id}")).json()["state"] == wanted


async def settled(box: Sidecar, before: tuple[int, int]) -> bool:
    return box.descriptors()[0] <= before[0] and len(box.tree()) <= 5


async def test_queue_in_order_then_busy(make) -> None:
    box = await make(claim={}, ops={"max_running": 2, "max_queued": 2})
    for number in range(4):
        await box.op("sleep 300", id=f"q{number}", detach=True)
        if number < 2:
            await until(partial(state, box, f"q{number}", "running"))
    states = [(await box.call("GET", f"/v1/ops/q{number}")).json()["state"] for number in range(4)]
    assert states == ["running", "running", "queued", "queued"]
    full = await box.call("POST", "/v1/exec", json={"command": "true"})
    assert (full.status_code, full.json()["error"], full.headers["retry-after"]) == (503, "busy", "1")
    queued = (await box.call("DELETE", "/v1/ops/q3")).json()
    assert (queued["state"], queued["verdict"], queued["pid"]) == ("ended", "killed", None)
    await box.call("DELETE", "/v1/ops/q0")
    await until(lambda: state(box, "q2", "running"))
    document = (await box.call("GET", "/v1/ops/q2")).json()
    assert document["usage"]["queued"] > 0


async def test_hundreds_of_ops_leave_nothing(box: Sidecar) -> None:
    for _ in range(5):
        await box.exec("true")
    before = box.descriptors()
    for _ in range(300):
        assert (await box.exec("true"))["exit_code"] == 0
    await until(lambda: settled(box, before))
    assert await processes_like(box, "true") == 0
