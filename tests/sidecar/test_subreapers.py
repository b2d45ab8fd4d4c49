"""Ops that are subreapers, as a Python context's program is: the end of one ends no other, under gVisor as under Linux."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.executor.gvisor import NEEDS_RUNSC
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.sidecar.gvisor_sidecar import MakeBox
    from tests.sidecar.support import Sidecar

pytestmark = pytest.mark.root

GVISOR = [pytest.mark.heavy, *NEEDS_RUNSC]  # it takes the cores that a test beside it waits for
ROUNDS = 12
# Many children: the more end in the same moment as their subreaper, the likelier is one in the middle of its end.
SUBREAPER = """
import ctypes, os, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
for _ in range(6):
    if os.fork() == 0:
        os.fork()
        time.sleep(600)
print("up", flush=True)
time.sleep(600)
"""
# Prints who is the parent of a process whose own has ended: "self" is this process, with an argument a subreaper.
ORPHAN = """
import ctypes, os, sys
if sys.argv[1:]:
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
first = os.getpid()
may_look, look = os.pipe()
answer, tell = os.pipe()
middle = os.fork()
if middle == 0:
    if os.fork() == 0:
        os.read(may_look, 1)
        os.write(tell, b"self" if os.getppid() == first else b"%d" % os.getppid())
    os._exit(0)
os.waitpid(middle, 0)
os.write(look, b"+")
print(os.read(answer, 10).decode())
"""


@pytest.fixture(params=["linux", pytest.param("gvisor", marks=GVISOR)])
def start(request: pytest.FixtureRequest) -> Callable[[], Awaitable[Sidecar]]:
    """Starts a claimed sandbox under each kernel."""
    if request.param == "linux":
        make = request.getfixturevalue("make")
        return lambda: make(claim={})
    gvisor: MakeBox = request.getfixturevalue("gvisor")
    return gvisor


async def test_a_killed_subreaper_takes_no_other_op_along(start: Callable[[], Awaitable[Sidecar]]) -> None:
    box = await start()
    await box.op("exec sleep 600", id="bystander")
    for number in range(ROUNDS):
        name = f"subreaper-{number}"
        await box.op(["python3", "-c", SUBREAPER], id=name)
        await until(lambda name=name: is_up(box, name))
        killed = (await box.call("DELETE", f"/v1/ops/{name}")).json()
        assert killed["verdict"] == "killed", killed
        bystander = (await box.call("GET", "/v1/ops/bystander")).json()
        assert bystander["state"] == "running", f"after {number} ends: {bystander}"
    reset = (await box.instance("POST", "/v1/reset", json={"keep_claim": True})).json()
    assert reset["equal"] is True, reset  # nobody is left, dead or alive


async def is_up(box: Sidecar, name: str) -> bool:
    return (await box.call("GET", f"/v1/ops/{name}")).json()["stdout_bytes"] > 0


async def test_an_orphan_has_the_nearest_subreaper_or_pid_1_as_its_parent(
    start: Callable[[], Awaitable[Sidecar]],
) -> None:
    box = await start()
    assert (await box.exec(["python3", "-c", ORPHAN]))["stdout"] == "1\n"
    assert (await box.exec(["python3", "-c", ORPHAN, "subreaper"]))["stdout"] == "self\n"
