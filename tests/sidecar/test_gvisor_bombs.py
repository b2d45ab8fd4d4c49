"""Programs under gVisor that have many processes: a bomb ends in a verdict, and what is none goes on."""

from __future__ import annotations

from typing import Any

import pytest
from sandlot_sidecar.executor.cgroups import RUNNERS_ALLOWANCE

from tests.executor.gvisor import NEEDS_RUNSC
from tests.sidecar.gvisor_sidecar import MakeBox
from tests.sidecar.support import Sidecar
from tests.waiting import until

pytestmark = [
    pytest.mark.root,
    pytest.mark.heavy,  # gVisor takes the cores that a test beside it waits for
    *NEEDS_RUNSC,
]


SHELL_BOMB = "bomb() { bomb | bomb & }; bomb"
PYTHON_BOMB = "import os\nwhile True:\n try: os.fork()\n except OSError: pass"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "verdicts"),
    [
        (f"{SHELL_BOMB}; sleep 60", {"pids_limit"}),
        (["python3", "-c", PYTHON_BOMB], {"pids_limit", "oom"}),
        (SHELL_BOMB, {"exited", "pids_limit"}),  # it has ended before what it left is a crowd
    ],
)
async def test_a_bomb_of_processes_is_ended(gvisor: MakeBox, command: Any, verdicts: set[str]) -> None:
    """gVisor lets some be born over the limit, and all of them are memory of one process of the machine."""
    # The node would kill all of it there. For 512 MiB the controller makes 1 GiB, which the most Pythons there can be, of
    # 3 MiB each, may fill where each system call of the watch waits for a loaded machine: the pod is lost as `oom` then.
    pod = 1 << 30 if isinstance(command, str) else 1792 << 20
    box = await gvisor(memory=pod, claim={"limits": {"memory": 512 << 20, "pids": 256}})
    answer = await box.exec(command, timeout=60)
    assert answer["verdict"] in verdicts, answer
    await until(lambda: few(box))
    assert box.pod.peak_memory < pod


async def few(box: Sidecar) -> bool:
    answer = await box.exec("ls -d /proc/[0-9]* | wc -l", timeout=30)
    return answer["verdict"] == "exited" and int(answer["stdout"] or "99") < 10


# Holds as many processes as it can get of 35, and says how many.
HOLDS = """
import os, sys, time
held = 0
for _ in range(35):
    try:
        if os.fork() == 0:
            time.sleep(600)
    except BlockingIOError:
        continue
    held += 1
os.write(1, b"%d\\n" % held)
time.sleep(600)
"""


async def test_commands_together_have_no_more_processes_than_the_limit_and_the_runners(
    gvisor: MakeBox,
) -> None:
    """No group of gVisor's limits them: each holds less than its own may, and it knows no limit of several."""
    box = await gvisor(claim={"limits": {"pids": 40}})
    held = [await holds(box, name) for name in ("a", "b", "c", "d")]
    most = 40 + RUNNERS_ALLOWANCE
    assert most - 30 < sum(held) < most
    assert (held[0], held[-1] < 35) == (35, True)
    raised = f"import resource; resource.setrlimit(resource.RLIMIT_NPROC, ({most + 1}, {most + 1}))"
    answer = await box.exec(["python3", "-c", raised])
    assert (answer["exit_code"], "not allowed" in answer["stderr"]) == (1, True), answer


async def holds(box: Sidecar, op: str) -> int:
    """Start an op that holds processes; how many it has."""
    await box.op(["python3", "-c", HOLDS], id=op, detach=True)
    return int(await until(lambda: printed(box, op)))


async def printed(box: Sidecar, op: str) -> bytes:
    return (await box.call("GET", f"/v1/ops/{op}/output?stream=stdout")).content


@pytest.mark.slow
@pytest.mark.parametrize("background", [False, True])
async def test_a_bomb_that_others_leave_no_room_to_grow_is_ended(gvisor: MakeBox, background: bool) -> None:
    """The limit of all processes stops it before that of its group, and the others, which only hold theirs, stay."""
    box = await crowded(gvisor)
    await box.call("PUT", "/v1/files?path=/bomb.py", content=PYTHON_BOMB.encode())
    if background:
        assert (await box.exec("setsid python3 /bomb.py > /dev/null 2>&1 &"))["verdict"] == "exited"
        await until(lambda: defused(box))
    else:
        answer = await box.exec("python3 /bomb.py", timeout=60)
        assert answer["verdict"] == "pids_limit", answer
    await until(lambda: only_the_crowd(box))  # of the dead ones some may not be reaped yet
    assert (await box.call("GET", "/v1/ops/crowd")).json()["state"] == "running"


async def only_the_crowd(box: Sidecar) -> bool:
    return (await box.exec("ls -d /proc/[0-9]* | wc -l"))["stdout"].strip() in ("94", "95", "96")


async def defused(box: Sidecar) -> bool:
    answer = await box.exec("cat /proc/[0-9]*/cmdline", timeout=30)
    return answer["verdict"] == "exited" and "bomb.py" not in answer["stdout"]


# Has as many processes as it can get. They compute for some seconds, then wait for the first one, whose system calls take
# a hundredth of a core: now and then a step of gVisor's clock of CPU time.
BUSY = """
import os, time
held = 0
begin, go = os.pipe()
hold, end = os.pipe()
try:
    while held < 95:
        if os.fork() == 0:
            os.close(go)
            os.close(end)
            os.read(begin, 1)
            until = time.monotonic() + 4
            while time.monotonic() < until: pass
            os.read(hold, 1)
            os._exit(0)
        held += 1
except BlockingIOError:
    print("full", end=" ")
os.close(go)
time.sleep(4)
for _ in range(40):
    until = time.monotonic() + 0.005
    while time.monotonic() < until: os.stat("/")
    time.sleep(0.5)
os.close(end)
for _ in range(held): os.wait()
print(held)
"""


@pytest.mark.slow
async def test_a_busy_command_in_a_full_pod_is_no_bomb(gvisor: MakeBox) -> None:
    box = await crowded(gvisor)
    answer = await box.exec(["python3", "-c", BUSY], timeout=150)
    assert (answer["verdict"], answer["exit_code"]) == ("exited", 0), answer
    full, held = answer["stdout"].split()
    assert (full, int(held) > 50) == ("full", True), answer


async def crowded(make: MakeBox) -> Sidecar:
    """A sandbox whose command has 90 processes of the 180 that there can be."""
    box = await make(claim={"limits": {"pids": 100}})
    await box.op("for i in $(seq 90); do sleep 600 & done; echo there; wait", id="crowd", detach=True)
    await until(lambda: printed(box, "crowd"))
    return box
