"""Resets, images and checkpoints of a sidecar in a pod of gVisor's."""

from __future__ import annotations

import pytest
from sandlot_sidecar.executor.cgroups import RUNNERS_ALLOWANCE

from tests.executor.gvisor import NEEDS_RUNSC
from tests.executor.plants import PLANTS
from tests.sidecar.gvisor_sidecar import MakeBox
from tests.sidecar.support import Sidecar
from tests.waiting import until

pytestmark = [
    pytest.mark.root,
    pytest.mark.heavy,  # gVisor takes the cores that a test beside it waits for
    *NEEDS_RUNSC,
]


DISK = 64 << 20
# A pod's PID 1 that gets no core for a moment, and so reaps what dies in the pod late.
REAPS_LATE = """
import os, signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
while True:
    signal.sigwait({signal.SIGCHLD})
    time.sleep(0.5)
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
"""


async def test_a_reset_begins_what_was_prepared(gvisor: MakeBox) -> None:
    """Also after its owner has killed PID 1, filled the disk and left processes."""
    box = await gvisor(volume=DISK)
    look = "cat /etc/hosts /etc/hostname /etc/passwd; ls -A / /etc /dev /dev/shm /tmp; hostname"
    fresh = (await box.exec(look))["stdout"]
    for generation in (1, 2, 3):
        for kind, (_, command) in PLANTS.items():
            assert (await box.exec(command))["exit_code"] == 0, kind
        await box.exec("kill -9 1; sleep 60")
        await box.exec("head -c 100000000 /dev/zero > /big")
        assert (await box.exec("setsid sleep 5555 > /dev/null 2>&1 &"))["exit_code"] == 0
        document = (await box.instance("POST", "/v1/reset", json={})).json()
        assert (document["equal"], document["phase"]) == (True, "warm"), document
        assert box.log().count('"prepared": true') == generation - 1
        await until(lambda count=generation: box.log().count('"event": "prepared"') == count)
        await box.claim(sandbox_id=f"sb-{generation}")
        assert (await box.exec(look))["stdout"] == fresh


async def test_each_owner_has_its_own_limit_of_processes(gvisor: MakeBox) -> None:
    """Also a higher one than the owner before, while the runner was prepared."""
    box = await gvisor(claim={"limits": {"pids": 40}})
    for generation, pids in enumerate((40, 40, 200, 40, 200), start=1):
        if generation > 1:
            await box.claim(sandbox_id=f"sb-{generation}", limits={"pids": pids})
            await until(lambda count=generation: box.log().count('"event": "prepared"') == count - 1)
        assert (await box.exec("ulimit -u"))["stdout"] == f"{pids + RUNNERS_ALLOWANCE}\n"
        assert (await box.instance("POST", "/v1/reset", json={})).json()["equal"] is True


async def test_a_reset_makes_room_before_the_next_owner_comes(gvisor: MakeBox) -> None:
    box = await gvisor(volume=DISK, claim={"limits": {"disk": DISK}})
    fill = "dd if=/dev/zero of=/work/big bs=1M count=60 && echo full"
    for _ in range(3):
        assert (await box.exec(fill))["stdout"] == "full\n"
        answer = await box.instance("POST", "/v1/reset", json={"keep_claim": True})
        assert answer.json()["equal"] is True, answer.text
        await until(lambda: usable(box))


async def test_reset_is_equal_to_fresh(gvisor: MakeBox) -> None:
    box = await gvisor()
    await box.exec("echo dirt | tee /dirt /tmp/dirt /dev/shm/dirt /work/dirt; sleep 300 & true")
    answer = await box.instance("POST", "/v1/reset", json={"keep_claim": True})
    assert answer.json()["equal"] is True, answer.text
    assert (await box.exec("ls -d /dirt /tmp/dirt /dev/shm/dirt /work/dirt 2>/dev/null"))["stdout"] == ""
    await until(lambda: usable(box))


async def test_a_reset_waits_until_running_commands_are_reaped(gvisor: MakeBox) -> None:
    """By the pod's PID 1: their runner, which is their parent, ends before them."""
    box = await gvisor(first=["python3", "-S", "-c", REAPS_LATE])
    for prepared in (False, True):
        await box.op("sleep 1000", id="long", detach=True)
        answer = await box.instance("POST", "/v1/reset", json={})
        assert answer.json()["equal"] is True, answer.text
        assert ('"prepared": true' in box.log()) is prepared
        if not prepared:
            await box.claim(sandbox_id="sb-2")
            await until(lambda: '"event": "prepared"' in box.log())


async def usable(box: Sidecar) -> bool:
    return (await box.exec("echo on"))["stdout"] == "on\n"


async def test_what_was_written_comes_into_another_pod(gvisor: MakeBox) -> None:
    first = await gvisor()
    change = (
        "mkdir /app && cd /app && echo text > file && chown 1000:1001 file && chmod 4750 file && ln -s file link && ln file hard"
        " && rm /etc/hostname; rm -rf /etc/apt && mkdir /etc/apt && echo new > /etc/apt/only"
    )
    assert (await first.exec(change))["exit_code"] == 0
    taken = await first.instance("POST", "/v1/checkpoint")
    assert taken.status_code == 200, taken.text
    second = await gvisor(claim={"restore": True})
    put = await second.instance("POST", "/v1/restore", content=taken.content)
    assert put.status_code == 200, put.text
    look = (
        "cd /app && cat file && stat -c '%a %u:%g' file && readlink link && test file -ef hard && ls /etc/apt"
    )
    assert (await second.exec(look))["stdout"].splitlines() == ["text", "4750 1000:1001", "file", "only"]


async def test_a_claim_lays_its_image_and_a_reset_keeps_it(gvisor: MakeBox) -> None:
    box = await gvisor()
    assert (await box.instance("POST", "/v1/reset", json={})).json()["equal"] is True
    await box.claim(image=box.image("one"))
    assert (await box.exec("cat /etc/which; id -u; echo [$FROM_IMAGE]"))["stdout"] == "one\n0\n[]\n"
    await box.exec("echo dirt > /etc/which; touch /bin/dirt")
    answer = (await box.instance("POST", "/v1/reset", json={})).json()
    assert (answer["equal"], answer["image"]) == (True, "sha256:one"), answer
    await box.claim(image=box.image("two", user="app"))
    assert box.log().count('"exchanged": true') == 2, box.log()
    assert (await box.exec("cat /etc/which; id -u; ls /bin/dirt"))["stdout"] == "two\n1234\n"
    assert (await box.instance("POST", "/v1/reset", json={})).json()["equal"] is True
