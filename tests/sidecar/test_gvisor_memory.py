"""Memory under gVisor, whose kernel holds no group to its limit: the sidecar does, before the pod's own limit is met."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.executor.gvisor import NEEDS_RUNSC
from tests.sidecar import hogs
from tests.sidecar.gvisor_sidecar import GvisorSidecar, MakeBox
from tests.sidecar.support import Sidecar
from tests.waiting import until

pytestmark = [
    pytest.mark.root,
    pytest.mark.alone,
    *NEEDS_RUNSC,
]

LIMIT = 256 << 20
POD = LIMIT + (
    512 << 20
)  # as the controller makes it: memoryHeadroom and sidecarMemoryLimit are above the claim's
ENV = {"LIMIT": str(LIMIT)}


async def small(make: MakeBox) -> GvisorSidecar:
    return await make(memory=POD, claim={"limits": {"memory": LIMIT, "pids": 256}})


async def unharmed(box: GvisorSidecar) -> None:
    assert (await box.exec("echo usable; sleep 0.2"))["stdout"] == "usable\n"
    assert box.pod.peak_memory < POD


@pytest.mark.parametrize("hog", hogs.FAST)
async def test_no_hog_is_faster_than_the_watch(gvisor: MakeBox, hog: str) -> None:
    box = await small(gvisor)
    for _ in range(2):
        answer = await box.exec(["python3", "-c", hogs.FAST[hog]], env=ENV, timeout=60)
        assert (answer["verdict"], answer["exit_code"]) == ("oom", 137), answer
        await unharmed(box)


async def test_the_limit_can_be_used(gvisor: MakeBox) -> None:
    box = await small(gvisor)
    answer = await box.exec(["python3", "-c", hogs.COUNTS], timeout=60)
    assert answer["verdict"] == "oom", answer
    # What Python itself takes is some 3 % of so little.
    assert int(answer["stdout"].split()[-1]) << 20 > 0.92 * LIMIT
    await unharmed(box)


async def test_what_commands_hold_together_is_bounded_and_the_largest_ends(gvisor: MakeBox) -> None:
    box = await small(gvisor)
    holds = "import time\nx = b'x' * ({} << 20)\nprint('has it', flush=True)\ntime.sleep({})"
    await box.op(["python3", "-c", holds.format(100, 600)], id="smaller", detach=True)
    await until(lambda: has_output(box, "smaller"))
    larger = await box.exec(["python3", "-c", holds.format(170, 60)], timeout=60)
    assert larger["verdict"] == "oom", larger
    assert (await box.call("GET", "/v1/ops/smaller")).json()["state"] == "running"
    await unharmed(box)


async def has_output(box: Sidecar, op: str) -> bool:
    document: dict[str, Any] = (await box.call("GET", f"/v1/ops/{op}")).json()
    return document["stdout_bytes"] > 0


async def test_a_hog_in_the_background_is_not_faster_either(gvisor: MakeBox) -> None:
    box = await small(gvisor)
    program = f"import time; time.sleep(1)\n{hogs.THREADS}"
    await box.call("PUT", "/v1/files?path=/hog.py", content=program.encode())
    assert (await box.exec("setsid python3 /hog.py > /dev/null 2>&1 & echo left"))["stdout"] == "left\n"
    # Nobody looks in by a command meanwhile, whose runner would look, too.
    await asyncio.sleep(3)
    await until(lambda: gone(box))
    await unharmed(box)


async def gone(box: Sidecar) -> bool:
    return "hog.py" not in (await box.exec("cat /proc/[0-9]*/cmdline"))["stdout"]


async def test_shared_memory_that_is_left_behind_counts_until_a_reset(gvisor: MakeBox) -> None:
    """It is charged to the group of a command that has ended, and with the group it would be forgotten."""
    box = await small(gvisor)
    leaves = ["python3", "-c", hogs.LEAVES, str(100 << 20)]
    assert (await box.exec(leaves))["verdict"] == "exited"
    assert (await box.exec(leaves))["verdict"] == "exited"
    assert (await box.exec(leaves))["verdict"] == "oom"
    assert box.pod.peak_memory < POD
    answer = await box.instance("POST", "/v1/reset", json={"keep_claim": True})
    assert answer.json()["equal"] is True, answer.text
    held = await box.exec(["python3", "-c", "x = b'x' * (200 << 20); print(len(x))"])
    assert held["stdout"] == f"{200 << 20}\n", held
