"""A sidecar in a pod of gVisor's: the sandbox and its sidecar are two containers in one sandboxed kernel."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from sandlot_sidecar.executor.disk_space import MIN_FILES

from tests.executor.gvisor import NEEDS_RUNSC, GvisorPod
from tests.executor.plants import PLANTS, TOUCH
from tests.sidecar.attacks import SPY
from tests.sidecar.disk_filling import check_evasions, check_full_disk
from tests.sidecar.gvisor_sidecar import GvisorSidecar
from tests.sidecar.support import Sidecar
from tests.waiting import until

pytestmark = [
    pytest.mark.root,
    pytest.mark.heavy,  # gVisor takes the cores that a test beside it waits for
    *NEEDS_RUNSC,
]


DISK = 64 << 20


MakeBox = Callable[..., Awaitable[GvisorSidecar]]


@pytest_asyncio.fixture
async def gvisor() -> AsyncIterator[MakeBox]:
    """Starts pods; arguments are the pod's, `claim` is for its sidecar."""
    made: list[GvisorSidecar] = []

    async def start(*, claim: dict[str, Any] | None = None, **options: Any) -> GvisorSidecar:
        box = GvisorSidecar(GvisorPod(**options))
        made.append(box)
        await asyncio.to_thread(box.pod.start)
        await box.start()
        await box.claim(**(claim or {}))
        return box

    yield start
    for box in made:
        try:
            await box.close()
        finally:
            await asyncio.to_thread(box.pod.close)


async def test_commands_files_and_a_terminal(gvisor: MakeBox) -> None:
    box = await gvisor(claim={"env": {"MINE": "1"}})
    answer = await box.exec("pwd; echo $FROM_IMAGE $MINE; dmesg | head -1; exit 3")
    assert (answer["exit_code"], answer["verdict"]) == (3, "exited")
    assert answer["stdout"].split("\n")[:2] == ["/work", "yes 1"]
    assert "gVisor" in answer["stdout"]
    data = os.urandom(300_000)
    assert (await box.call("PUT", "/v1/files?path=/work/data", content=data)).status_code == 200
    assert (await box.exec("wc -c < data"))["stdout"].strip() == "300000"
    assert (await box.call("GET", "/v1/files?path=/work/data")).content == data
    terminal = await box.op("test -t 0 && stty size", pty={"cols": 91, "rows": 17}, id="tty", wait=20)
    assert (terminal["exit_code"], terminal["stdout_bytes"]) == (0, len("17 91\r\n"))


async def test_commands_do_not_see_what_holds_the_container(gvisor: MakeBox) -> None:
    box = await gvisor()
    answer = await box.exec("ls -a /; cat /proc/mounts; mkdir /.sandlot && echo mine > /.sandlot/holder")
    assert answer["exit_code"] == 0, answer
    assert ".sandlot" not in answer["stdout"]


async def test_what_the_image_says_holds(gvisor: MakeBox) -> None:
    user = {"uid": 1234, "gid": 1234, "additionalGids": [1234]}
    box = await gvisor(user=user, readonly=True, claim={"network": "none"})
    answer = await box.exec(
        "id -u; echo $HOME; echo x > ~/made; cat /proc/self/status | grep CapEff; echo no > /etc/passwd"
    )
    assert answer["stdout"].split() == ["1234", "/home/user", "CapEff:", "0000000000000000"]
    assert answer["exit_code"] != 0
    assert (await box.exec("tail -n +3 /proc/net/dev | cut -d: -f1"))["stdout"].split() == ["lo"]
    status = (await box.exec("grep -E '^Cap(Bnd|Eff)' /proc/self/status", user="root"))["stdout"].split()
    # As given to the container, without CAP_NET_RAW, which runsc takes away.
    assert status == ["CapEff:", "00000000a80405fb", "CapBnd:", "00000000a80405fb"]


async def test_the_end_of_pid_1_is_noticed_and_mended(gvisor: MakeBox) -> None:
    """Linux protects a PID 1 from its own children; gVisor does not: what it takes along was killed by the code."""
    box = await gvisor()
    await box.exec("echo kept > /work/file")
    await box.op("sleep 600", id="bystander", detach=True)
    answer = await box.exec("kill -9 1; sleep 60")
    assert (answer["verdict"], answer["signal"], answer["exit_code"]) == ("signaled", 9, 137), answer
    assert (await box.ended("bystander"))["verdict"] == "signaled"
    assert (await box.exec("cat /work/file"))["stdout"] == "kept\n"
    assert (await box.instance("GET", "/v1/state")).json()["phase"] == "claimed"


async def test_who_kills_pid_1_in_a_loop_ends_its_sandbox_by_its_own_doing(gvisor: MakeBox) -> None:
    box = await gvisor()
    for _ in range(10):
        answer = await box.call("POST", "/v1/exec", json={"command": "kill -9 1; sleep 60"})
        if answer.status_code == 410:
            assert answer.json()["verdict"] == "init_killed"
            break
        assert (answer.json()["verdict"], answer.json()["exit_code"]) == ("signaled", 137), answer.json()
    assert (await box.webhooks.wait("ended"))["verdict"] == "init_killed"
    assert await box.wait_exit() == 0


async def test_files_of_the_pod_are_the_sandboxes_own(gvisor: MakeBox) -> None:
    box = await gvisor()
    given = box.pod.directory / "given"
    before = {path.name: path.read_bytes() for path in given.iterdir()}
    look = "cat /etc/hosts /etc/resolv.conf /etc/hostname /etc/passwd; ls -A / /etc /dev /dev/shm /tmp"
    fresh = (await box.exec(look))["stdout"]
    assert "192.0.2.53" in fresh
    for kind, (_, command) in PLANTS.items():
        assert (await box.exec(command))["exit_code"] == 0, kind
    assert (await box.exec(look))["stdout"] != fresh
    assert {path.name: path.read_bytes() for path in given.iterdir()} == before
    document = (await box.instance("POST", "/v1/reset", json={"keep_claim": True})).json()
    assert document["equal"] is True, document
    assert (await box.exec(look))["stdout"] == fresh


async def test_what_no_reset_cleans_cannot_be_touched(gvisor: MakeBox) -> None:
    box = await gvisor()
    answer = await box.exec(["python3", "-c", TOUCH])
    assert (answer["stdout"], answer["exit_code"]) == ("", 0), answer


async def test_user_code_sees_and_hurts_nothing_of_the_sidecar(gvisor: MakeBox) -> None:
    box = await gvisor()
    await box.call("PUT", "/v1/files?path=/spy.py", content=SPY.replace("TOKENPART", "of-a-test").encode())
    assert (await box.exec("python3 /spy.py"))["stdout"].strip() == "[]"
    assert (await box.exec("cat /proc/1/cmdline | tr -d '\\0'; ls -d /proc/[0-9]* | wc -l"))[
        "stdout"
    ].startswith("init")
    await box.exec("kill -9 -1; for i in $(seq 2 60); do kill -9 $i; done")
    assert (await box.exec("echo usable"))["stdout"] == "usable\n"


async def test_too_much_memory_is_oom_and_the_pod_lives(gvisor: MakeBox) -> None:
    box = await gvisor(claim={"limits": {"memory": 256 << 20}})
    held = await box.exec(["python3", "-c", "x = b'x' * (100 << 20); print(len(x))"])
    assert held["stdout"] == f"{100 << 20}\n"
    eater = "x = []\nwhile True: x.append(b'x' * (4 << 20))"
    answer = await box.exec(["python3", "-c", eater], timeout=60)
    assert answer["verdict"] == "oom", answer
    assert answer["usage"]["peak_memory"] < 512 << 20
    assert (await box.exec("echo usable"))["stdout"] == "usable\n"


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
    pod = 1 << 30  # as the controller makes it for 512 MiB: the node would kill all of it there
    box = await gvisor(memory=pod, claim={"limits": {"memory": 512 << 20, "pids": 256}})
    answer = await box.exec(command, timeout=60)
    assert answer["verdict"] in verdicts, answer
    await until(lambda: few(box), seconds=60)
    assert box.pod.peak_memory < pod


async def few(box: Sidecar) -> bool:
    answer = await box.exec("ls -d /proc/[0-9]* | wc -l", timeout=30)
    return answer["verdict"] == "exited" and int(answer["stdout"] or "99") < 10


async def test_memory_held_in_the_background_is_bounded_too(gvisor: MakeBox) -> None:
    box = await gvisor(claim={"limits": {"memory": 256 << 20}})
    eater = "import time\nx = []\nfor _ in range(80): x.append(b'x' * (4 << 20)); time.sleep(0.01)\ntime.sleep(600)"
    await box.call("PUT", "/v1/files?path=/eater.py", content=eater.encode())
    answer = await box.exec("setsid python3 /eater.py > /dev/null 2>&1 & echo left")
    assert answer["stdout"] == "left\n"
    await until(lambda: eaten(box), seconds=60)
    assert (await box.exec("echo usable"))["stdout"] == "usable\n"


async def eaten(box: Sidecar) -> bool:
    return "eater.py" not in (await box.exec("cat /proc/[0-9]*/cmdline"))["stdout"]


@pytest.mark.parametrize("volume", [None, DISK], ids=["measured", "kept by gVisor"])
async def test_a_full_disk_is_a_verdict_and_the_sandbox_lives(gvisor: MakeBox, volume: int | None) -> None:
    await check_full_disk(await gvisor(volume=volume, claim={"limits": {"disk": DISK}}))


@pytest.mark.parametrize("volume", [None, DISK], ids=["measured", "kept by gVisor"])
async def test_files_without_a_name_or_content_fill_the_disk(gvisor: MakeBox, volume: int | None) -> None:
    box = await gvisor(volume=volume, claim={"limits": {"disk": DISK}})
    await check_evasions(box, files=MIN_FILES, kernel=volume is not None)
    assert box.pod.memory < 1 << 30


async def test_a_volume_that_gvisor_keeps_ends_at_the_byte(gvisor: MakeBox) -> None:
    box = await gvisor(volume=DISK, claim={"limits": {"disk": DISK}})
    assert not [note for note in (await box.instance("GET", "/v1/state")).json()["notes"] if "disk" in note]
    answer = await box.exec("dd if=/dev/zero of=/work/big bs=1M count=200; stat -c %s /work/big")
    assert 0.99 * DISK < int(answer["stdout"]) <= DISK, answer
    assert "No space left" in answer["stderr"]
    # A smaller claim than the volume is held by looks.
    smaller = await gvisor(volume=4 * DISK, claim={"limits": {"disk": DISK}})
    await check_full_disk(smaller)


async def test_a_reset_makes_room_before_the_next_owner_comes(gvisor: MakeBox) -> None:
    box = await gvisor(volume=DISK, claim={"limits": {"disk": DISK}})
    fill = "dd if=/dev/zero of=/work/big bs=1M count=60 && echo full"
    for _ in range(3):
        assert (await box.exec(fill))["stdout"] == "full\n"
        answer = await box.instance("POST", "/v1/reset", json={"keep_claim": True})
        assert answer.json()["equal"] is True, answer.text
        await until(lambda: usable(box))


async def test_no_dead_process_stays(gvisor: MakeBox) -> None:
    box = await gvisor()
    orphan = "import os, time\nif os.fork() == 0:\n if os.fork() == 0: os._exit(0)\n time.sleep(0.2); os._exit(0)\ntime.sleep(0.4)"
    await box.exec(["python3", "-c", orphan])
    await until(lambda: nobody_dead(box))


async def nobody_dead(box: Sidecar) -> bool:
    return "(Z" not in (await box.exec("cat /proc/[0-9]*/status | grep ^State"))["stdout"].replace("\t", "(")


async def test_a_timeout_and_what_is_left_behind(gvisor: MakeBox) -> None:
    box = await gvisor()
    left = await box.exec("(setsid sleep 300 &) ; echo started")
    assert left["stdout"] == "started\n"
    late = await box.exec("echo partial; setsid sleep 301 & sleep 302", timeout=3.0)
    assert (late["verdict"], late["stdout"]) == ("timeout", "partial\n")
    sleeping = (await box.exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' '"))["stdout"]
    assert "sleep 300" in sleeping
    assert "sleep 301" not in sleeping
    assert "sleep 302" not in sleeping


async def test_reset_is_equal_to_fresh(gvisor: MakeBox) -> None:
    box = await gvisor()
    await box.exec("echo dirt | tee /dirt /tmp/dirt /dev/shm/dirt /work/dirt; sleep 300 & true")
    answer = await box.instance("POST", "/v1/reset", json={"keep_claim": True})
    assert answer.json()["equal"] is True, answer.text
    assert (await box.exec("ls -d /dirt /tmp/dirt /dev/shm/dirt /work/dirt 2>/dev/null"))["stdout"] == ""
    await until(lambda: usable(box))


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
