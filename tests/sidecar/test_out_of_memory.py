"""Memory that is used up: whose doing it was is the verdict, and the sandbox lives."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from pathlib import Path

import pytest

from tests.sidecar.calls import has_process, usable
from tests.sidecar.processes import command_line, descendants
from tests.sidecar.support import MEMORY, Sidecar, tells_why
from tests.waiting import until

pytestmark = pytest.mark.root


async def test_too_much_memory_is_oom_and_the_sandbox_lives(box: Sidecar) -> None:
    if box.cgroup.name is None:
        pytest.skip("needs a writable memory cgroup")
    await box.exec("sleep 300 & echo background")
    answer = await box.exec("python3 -c 'x = bytearray(2 << 30)'", timeout=30)
    assert answer["verdict"] == "oom"
    assert answer["exit_code"] != 0
    tells_why(answer, "the memory limit was reached")
    await usable(box)


async def test_memory_that_others_used_up_is_not_the_code_s_doing() -> None:
    """A group above the sandbox's is at its limit long before the sandbox is, as a node may be."""
    box = Sidecar()
    if box.cgroup.name is None:
        await box.close()
        pytest.skip("needs a writable memory cgroup")
    box.cgroup.make()
    node = Path("/sys/fs/cgroup/memory") / box.cgroup.name
    box.config["cgroup_parent"] = f"{box.cgroup.name}/sandbox"
    (node / "memory.limit_in_bytes").write_text(str(160 << 20))
    try:
        await box.start()
        await box.claim()
        answer = await box.op(["python3", "-c", "x = bytearray(300 << 20)"], wait=30)
        assert answer["verdict"] == "sandbox_broken", answer
        assert answer["message"] == "the node ran out of memory; this sandbox was within its limits"
        await usable(box)
        await fill_unkillable(box)
        lost = await box.ended("hides", wait=30)
        assert (lost["verdict"], lost["message"]) == (answer["verdict"], answer["message"])
        await usable(box)
        # Its own limit, lower than the node's, is its own doing.
        own = await box.op(["python3", "-c", "x = bytearray(100 << 20)"], memory=64 << 20, wait=30)
        assert own["verdict"] == "oom", own
    finally:
        await box.close()


# CAP_SYS_RESOURCE: without it a sidecar cannot hold an op to its score, and the kernel kills the runner, which is larger.
MAY_SPARE = bool(int(Path("/proc/self/status").read_text().partition("CapEff:")[2].split()[0], 16) >> 24 & 1)
HIDDEN = """
import os, sys
try:
    open("/proc/self/oom_score_adj", "w").write("0")
    print("lowered", flush=True)
except OSError:
    print("refused", flush=True)
sys.stdin.readline()
# What a memfd holds counts for the control group and for no process, and dd is smaller than the runner.
os.dup2(os.memfd_create("held"), 1)
os.execvp("sh", ["sh", "-c", "dd if=/dev/zero bs=1M; exec sleep 606"])
"""


async def test_an_op_cannot_have_its_runner_killed_for_its_memory(box: Sidecar) -> None:
    if box.cgroup.name is None:
        pytest.skip("needs a writable memory cgroup")
    answer = await box.exec(["python3", "-c", HIDDEN], stdin="\n", timeout=30)
    assert answer["verdict"] == "oom", answer
    assert answer["stdout"] == ("refused\n" if MAY_SPARE else "lowered\n")
    await usable(box)


async def test_a_runner_that_is_killed_for_the_op_s_memory_is_the_op_s_oom(box: Sidecar) -> None:
    if box.cgroup.name is None:
        pytest.skip("needs a writable memory cgroup")
    await fill_unkillable(box)
    ended = await box.ended("hides", wait=30)
    assert (ended["verdict"], ended["message"]) == ("oom", "the memory limit was reached"), ended
    assert ended["usage"]["peak_memory"] > MEMORY // 2
    assert not [pid for pid in descendants(box.pid) if b"606" in command_line(pid)]
    await usable(box)


async def fill_unkillable(box: Sidecar) -> None:
    """Of an op that the kernel spares, its runner is what is left to be killed."""
    await box.op(["python3", "-c", HIDDEN], id="hides", stdin=True, detach=True)
    await until(lambda: has_process(box, "hides"))
    (hog,) = [pid for pid in descendants(box.pid) if b"memfd_create" in command_line(pid)]
    if MAY_SPARE:
        await asyncio.to_thread(Path(f"/proc/{hog}/oom_score_adj").write_text, "-1000")
    assert (await box.call("POST", "/v1/ops/hides/stdin?offset=0", content=b"\n")).status_code == 200


SEGMENTS = """
import ctypes
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
while True:
    segment = libc.shmget(0, 8 << 20, 0o1600)  # IPC_PRIVATE, IPC_CREAT: it outlives who made it
    place = ctypes.c_void_p(libc.shmat(segment, None, 0))
    ctypes.memset(place, 1, 8 << 20)
    libc.shmdt(place)
"""


def fill(group: Path) -> bool:
    """Whether the kernel took the limit: it does not when a runner that ends or begins has used the room meanwhile."""
    used = int((group / "memory.usage_in_bytes").read_text())
    try:
        (group / "memory.limit_in_bytes").write_text(str(used + (64 << 10)))
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


async def test_memory_that_code_has_left_full_is_its_own_doing(box: Sidecar) -> None:
    """No process is left to be killed, and what is to run the next command finds no memory."""
    if box.cgroup.name is None:
        pytest.skip("needs a writable memory cgroup")
    assert (await box.exec(["python3", "-c", SEGMENTS], timeout=30))["verdict"] == "oom"
    group = Path("/sys/fs/cgroup/memory") / box.cgroup.name

    told = set[tuple[str, str | None]]()
    for _ in range(3):
        await until(lambda: asyncio.to_thread(fill, group))  # as a smaller program would
        answers = await asyncio.gather(*(box.op("exec sleep 0.2", wait=30) for _ in range(6)))
        told |= {(answer["verdict"], answer["message"]) for answer in answers}
        assert told <= {("exited", None), ("oom", "the memory limit was reached")}, (told, box.log())
    assert ("oom", "the memory limit was reached") in told
    assert (await box.instance("POST", "/v1/reset", json={"keep_claim": True})).status_code == 200
    await usable(box)


async def test_a_group_that_has_no_memory_for_another_runner_is_its_own_doing(box: Sidecar) -> None:
    if box.cgroup.name is None:
        pytest.skip("needs a writable memory cgroup")
    assert (await box.exec(["python3", "-c", SEGMENTS], timeout=30))["verdict"] == "oom"
    group = Path("/sys/fs/cgroup/memory") / box.cgroup.name
    stopped = asyncio.create_task(keep_full(group))
    try:
        for _ in range(5):
            answers = await asyncio.gather(*(box.op("exec sleep 0.2", wait=30) for _ in range(6)))
            told = {(answer["verdict"], answer["message"]) for answer in answers}
            assert told <= {("exited", None), ("oom", "the memory limit was reached")}, (told, box.log())
    finally:
        stopped.cancel()
    assert "runner_failed" in box.log()
    assert (await box.instance("POST", "/v1/reset", json={"keep_claim": True})).status_code == 200
    await usable(box)


async def keep_full(group: Path) -> None:
    while True:
        with contextlib.suppress(OSError):  # it grows meanwhile
            (group / "memory.limit_in_bytes").write_text((group / "memory.usage_in_bytes").read_text())
        await asyncio.sleep(0.01)


async def hold_shared_memory(box: Sidecar) -> int:
    """Open the namespace that holds the segments, for which the kernel otherwise takes its time after its end."""
    await box.op(["sleep", "607"], id="holds", detach=True)
    await until(lambda: has_process(box, "holds"))
    (pid,) = [pid for pid in descendants(box.pid) if b"607" in command_line(pid)]
    return os.open(f"/proc/{pid}/ns/ipc", os.O_RDONLY)


@pytest.mark.parametrize("is_prepared", [False, True])
@pytest.mark.parametrize("keep", [True, False])
async def test_a_reset_waits_until_the_memory_of_the_former_use_is_free(
    make, is_prepared: bool, keep: bool
) -> None:
    box: Sidecar = await make(claim={}, limits={"cpu": 2.0, "memory": 64 << 20, "pids": 256})
    if box.cgroup.name is None:
        pytest.skip("needs a writable memory cgroup")
    if is_prepared:
        assert (await box.instance("POST", "/v1/reset", json={})).json()["equal"]
        await box.claim()
        await until(lambda: '"event": "prepared"' in box.log())
    held = await hold_shared_memory(box)
    assert (await box.exec(["python3", "-c", SEGMENTS], timeout=30))["verdict"] == "oom"
    asyncio.get_running_loop().call_later(1.0, os.close, held)
    answer = await box.instance("POST", "/v1/reset", json={"keep_claim": keep})
    assert answer.json().get("equal"), answer.text
    if not keep:
        await box.claim()
    answers = await asyncio.gather(*(box.op("exec sleep 0.2", wait=30) for _ in range(6)))
    assert {answer["verdict"] for answer in answers} == {"exited"}, answers


async def test_memory_of_one_op(box: Sidecar) -> None:
    if box.cgroup.name is None:
        pytest.skip("needs a writable memory cgroup")
    document = await box.op(["python3", "-c", "x = bytearray(200 << 20)"], memory=64 << 20, wait=30)
    assert document["verdict"] == "oom"
    fine = await box.op(["python3", "-c", "x = bytearray(100 << 20)"], wait=30)
    assert fine["verdict"] == "exited"
