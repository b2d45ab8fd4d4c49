"""A sidecar in a pod of gVisor's: the sandbox and its sidecar are two containers in one sandboxed kernel."""

from __future__ import annotations

import asyncio
import os

import pytest
from sandlot_sidecar.executor.disk_space import MIN_FILES

from tests.executor.gvisor import NEEDS_RUNSC
from tests.executor.plants import PLANTS, TOUCH
from tests.sidecar.attacks import SPY
from tests.sidecar.disk_filling import check_evasions, check_full_disk
from tests.sidecar.gvisor_sidecar import MakeBox
from tests.sidecar.stopping import ENDS_BY_ITSELF, check_stop
from tests.sidecar.support import Sidecar
from tests.sidecar.watching import told, watching
from tests.waiting import until

pytestmark = [
    pytest.mark.root,
    pytest.mark.heavy,  # gVisor takes the cores that a test beside it waits for
    *NEEDS_RUNSC,
]


DISK = 64 << 20
CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=30).close()
    print("connected")
except OSError as error:
    print(type(error).__name__)
"""


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
    terminal = await box.op("test -t 0 && stty size", pty={"cols": 91, "rows": 17}, id="tty", wait=50)
    assert (terminal["exit_code"], terminal["stdout_bytes"]) == (0, len("17 91\r\n"))


async def test_files_of_a_user(gvisor: MakeBox) -> None:
    box = await gvisor()
    await box.exec("mkdir -m 777 /open; mkdir -m 700 /closed; echo x > /closed/f; ln -s /closed /open/link")
    written = await box.call("PUT", "/v1/files?path=/open/d/f&user=1234", content=b"own")
    assert written.status_code == 200, written.text
    assert (await box.exec("stat -c %u /open/d /open/d/f"))["stdout"] == "1234\n1234\n"
    assert (await box.call("GET", "/v1/files?path=/open/d/f&user=1234")).content == b"own"
    for method, path in (("GET", "/open/link/f"), ("PUT", "/open/link/f"), ("DELETE", "/open/link/f")):
        refused = await box.call(method, f"/v1/files?path={path}&user=1234")
        assert (refused.status_code, refused.json()["error"]) == (403, "permission"), refused.text
    assert (await box.call("GET", "/v1/files?path=/open/link/f&user=0")).content == b"x\n"


async def test_a_start_command_has_its_stop_signal_and_its_grace(gvisor: MakeBox) -> None:
    await check_stop(await gvisor(claim=ENDS_BY_ITSELF))


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
    await box.exec("echo kept > /work/file; mkdir -p /work/old/deep")
    await box.op("sleep 600", id="bystander", detach=True)
    async with watching(box, "/work", recursive="1") as watch:
        await box.exec("mv /work/old /work/moved")
        await watch.until({"kind": "renamed", "from": "/work/old", "path": "/work/moved"})
        answer = await box.exec("kill -9 1; sleep 60")
        after = await box.exec("echo x > /work/moved/deep/f; mv /work/moved/deep/f /work/g; mkdir /work/new")
        assert after["verdict"] == "exited", after
        events = told(await watch.until({"kind": "created", "path": "/work/new"}))
        await box.exec(": > /work/new/last")
        await watch.until({"kind": "created", "path": "/work/new/last"})
    assert ("created", "/work/moved/deep/f") in events
    assert ("renamed", "/work/g", "/work/moved/deep/f") in events
    assert (answer["verdict"], answer["signal"], answer["exit_code"]) == ("signaled", 9, 137), answer
    assert (await box.ended("bystander"))["verdict"] == "signaled"
    assert (await box.exec("cat /work/file"))["stdout"] == "kept\n"
    assert (await box.instance("GET", "/v1/state")).json()["phase"] == "claimed"


async def test_a_command_sent_after_the_end_of_pid_1_runs(gvisor: MakeBox) -> None:
    """Who killed it is answered once the next one is there: a command that its caller sends then is not killed."""
    box = await gvisor()
    for _ in range(5):  # six within ten seconds end the sandbox
        await asyncio.gather(*(box.op("sleep 600", detach=True) for _ in range(4)))  # it ends after them
        assert (await box.exec("kill -9 1; sleep 60"))["verdict"] == "signaled"
        answer = await box.exec("echo runs")
        assert (answer["verdict"], answer["stdout"]) == ("exited", "runs\n"), answer


async def test_who_kills_pid_1_in_a_loop_ends_its_sandbox_by_its_own_doing(gvisor: MakeBox) -> None:
    box = await gvisor()
    box.webhooks.answering.clear()  # it exits once its end is heard, and would be gone before the next command
    for _ in range(60):  # it takes six within ten seconds, which are more on a busy machine
        answer = await box.call("POST", "/v1/exec", json={"command": "kill -9 1; sleep 60"})
        if answer.status_code == 410:
            assert answer.json()["verdict"] == "init_killed"
            break
        assert (answer.json()["verdict"], answer.json()["exit_code"]) == ("signaled", 137), answer.json()
    box.webhooks.answering.set()
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
    assert answer["usage"]["peak_memory"] < 1 << 30  # what it takes until the watch has a core
    assert (await box.exec("echo usable"))["stdout"] == "usable\n"


async def test_memory_held_in_the_background_is_bounded_too(gvisor: MakeBox) -> None:
    box = await gvisor(claim={"limits": {"memory": 256 << 20}})
    eater = "import time\nx = []\nfor _ in range(80): x.append(b'x' * (4 << 20)); time.sleep(0.01)\ntime.sleep(600)"
    await box.call("PUT", "/v1/files?path=/eater.py", content=eater.encode())
    answer = await box.exec("setsid python3 /eater.py > /dev/null 2>&1 & echo left")
    assert answer["stdout"] == "left\n"
    await until(lambda: eaten(box))
    assert (await box.exec("echo usable"))["stdout"] == "usable\n"


async def eaten(box: Sidecar) -> bool:
    return "eater.py" not in (await box.exec("cat /proc/[0-9]*/cmdline"))["stdout"]


@pytest.mark.parametrize("volume", [None, DISK], ids=["measured", "kept by gVisor"])
async def test_a_full_disk_is_a_verdict_and_the_sandbox_lives(gvisor: MakeBox, volume: int | None) -> None:
    await check_full_disk(await gvisor(volume=volume, claim={"limits": {"disk": DISK}}))


@pytest.mark.timeout(400)  # 25,000 files: a minute and a quarter where a dozen other processes want the cores
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
    late = await box.exec("echo partial; setsid sleep 301 & sleep 302", timeout=20.0)
    assert (late["verdict"], late["stdout"]) == ("timeout", "partial\n")
    sleeping = (await box.exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' '"))["stdout"]
    assert "sleep 300" in sleeping
    assert "sleep 301" not in sleeping
    assert "sleep 302" not in sleeping


@pytest.mark.parametrize("network", ["full", "none"])
async def test_services_have_names_and_listeners(gvisor: MakeBox, network: str) -> None:
    """gVisor's loopback takes listeners at any address of 127.0.0.0/8, in the pod's network and in one of its own."""
    service = {"name": "db", "address": "127.83.0.1", "ports": [5432]}
    box = await gvisor(claim={"network": network, "services": [service]})
    found = await box.exec(["python3", "-c", CONNECT, "db", "5432"])
    assert found["stdout"] == "connected\n", found
    found = await box.exec(["python3", "-c", CONNECT, "db", "5433"])
    assert found["stdout"] == "ConnectionRefusedError\n", found
    reset = await box.instance("POST", "/v1/reset", json={"keep_claim": False})
    assert reset.json()["equal"] is True, reset.text
    await box.claim(network=network)
    found = await box.exec(["python3", "-c", CONNECT, "127.83.0.1", "5432"])
    assert found["stdout"] == "ConnectionRefusedError\n", found
