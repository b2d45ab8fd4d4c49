"""Code that is root in its sandbox and wants to harm: what it does is told as its own, and nobody else suffers.

Each attack is played in every shape of a sandbox that this machine can make: the local backend's, a container of runc's
and a pod of gVisor's. Meanwhile a neighbour is called, and the sidecar that is attacked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from tests.cable import cable
from tests.executor.container import NEEDS_RUNC
from tests.executor.gvisor import NEEDS_RUNSC
from tests.sidecar.attacker import (
    MOST_OF_POD,
    ROOM_FOR_ALL_PROCESSES,
    AttackerAndNeighbour,
    start_in_container,
    start_in_gvisor,
    start_local,
)
from tests.sidecar.gvisor_sidecar import PORT, NetworkedGvisorSidecar
from tests.sidecar.support import Sidecar

pytestmark = pytest.mark.root


RUNC = pytest.param("runc", marks=NEEDS_RUNC)
# Its kernel and sidecar share what cores the attack leaves: beside other attacks an answer would take half a minute.
GVISOR = pytest.param("gvisor", marks=[*NEEDS_RUNSC, pytest.mark.heavy])
everywhere = pytest.mark.parametrize("shape", ["local", RUNC, GVISOR])


@pytest_asyncio.fixture
async def both(shape: str, request: pytest.FixtureRequest) -> AsyncIterator[AttackerAndNeighbour]:
    """Two sandboxes of a shape, each with a network of its own where its sidecar listens on one."""
    of_processes = "attack" in request.fixturenames and request.getfixturevalue("attack") == "processes"
    memory = ROOM_FOR_ALL_PROCESSES if of_processes else MOST_OF_POD
    made: list[tuple[Sidecar, Callable[[], None]]] = []
    async with AsyncExitStack() as stack:
        boxes: list[Sidecar] = []
        url = None
        try:
            for kind, network in (("a", 18), ("n", 19)):
                if shape == "local":
                    boxes.append(await start_local(made))
                else:
                    net = stack.enter_context(cable(kind, network=network))
                    url = url or f"http://{net.inside}:{PORT}"
                    if shape == "runc":
                        boxes.append(await start_in_container(made, net))
                    else:
                        boxes.append(await start_in_gvisor(made, net, memory=memory))
            yield AttackerAndNeighbour(*boxes, url=url)
        finally:
            for box, close in made:
                try:
                    await box.close()
                finally:
                    await asyncio.to_thread(close)


CONNECTIONS = """
import socket, sys, time
port = int(sys.argv[1])
end = time.monotonic() + 3
head = b"%s HTTP/1.1\\r\\nHost: x\\r\\nAuthorization: Bearer no\\r\\nContent-Length: 8388608\\r\\n\\r\\n"
starts = [
    head % b"GET /healthz", head % b"POST /v1/exec", b"", b"GET /" + b"x" * 15000,
    b"GET /healthz HTTP/1.1\\r\\n" + b"".join(b"%x:\\r\\n" % number for number in range(2500)),
]
held, opened = [], 0
while time.monotonic() < end or opened < 301:
    try:
        connection = socket.create_connection(("127.0.0.1", port), 2)
        connection.settimeout(0.05)
        connection.sendall(starts[opened % len(starts)])
        connection.setblocking(False)
    except OSError:
        continue
    opened += 1
    held.append(connection)
    if len(held) > 300:
        held.pop(0).close()
    for one in held[-60:]:
        try:
            one.send(bytes(65536))
        except OSError:
            pass
print(opened)
"""


@pytest.mark.parametrize("shape", [RUNC, GVISOR])
async def test_a_flood_of_connections_with_bodies_takes_no_memory_and_pushes_nobody_out(
    both: AttackerAndNeighbour,
) -> None:
    """Where code reaches its sidecar's port: hundreds of connections, and bodies of 8 MiB that come slowly."""
    # It goes on until it has opened that many, however slow the machine is.
    answer = await both.attack(["python3", "-c", CONNECTIONS, str(PORT)], timeout=120.0)
    assert answer["verdict"] == "exited", answer
    assert int(answer["stdout"]) > 300, answer
    await both.unharmed()


# Verdicts that are the code's own, of docs/sidecar-contract.md.
OWN = frozenset(("exited", "signaled", "timeout", "oom", "disk_full", "pids_limit"))
OUTPUT = "import os\nwhile True: os.write(1, bytes(1 << 20)); os.write(2, bytes(1 << 20))"
MEMORY = "held = []\nwhile True: held.append(b'x' * (8 << 20))"
PROCESSES = "import os\nwhile True:\n try: os.fork()\n except OSError: pass"
DESCRIPTORS = """
import os, socket
held = []
try:
    while True: held.append(socket.socketpair())
except OSError as error:
    print("refused", error.errno)
    os.abort()
"""
SIGNALS = """
import os, signal
for number in range(1, 65):
    for pid in (1, 2, 3, -1):
        try: os.kill(pid, number)
        except OSError: pass
"""
INIT = """
import os, signal, time
for _ in range(50):
    os.kill(1, signal.SIGKILL)
    time.sleep(0.01)
"""
UNLINKED = """
import os
held = []
while True:
    held.append(os.open(f"/tmp/{len(held)}", os.O_CREAT | os.O_RDWR))
    os.unlink(f"/tmp/{len(held) - 1}")
    os.write(held[-1], bytes(1 << 20))
"""
# More files than the disk may hold, without a byte in them.
INODES = """
import os
for number in range(1 << 20):
    if number % 1000 == 0:
        os.makedirs(f"/root/empty/{number}")
    os.close(os.open(f"/root/empty/{number // 1000 * 1000}/{number}", os.O_CREAT | os.O_WRONLY))
"""
# What it holds counts for no process, so that the kernel may kill another than this one.
MEMFD = """
import os
try: open("/proc/self/oom_score_adj", "w").write("0")
except OSError: pass
os.dup2(os.memfd_create("held"), 1)
os.execvp("dd", ["dd", "if=/dev/zero", "bs=1M"])
"""
ATTACKS = {
    "output": (OUTPUT, {"timeout", "disk_full"}),
    "memory": (MEMORY, {"oom"}),
    "memfd": (MEMFD, {"oom"}),
    "processes": (PROCESSES, {"pids_limit", "oom", "timeout", "signaled"}),
    "descriptors": (DESCRIPTORS, {"signaled"}),
    "signals": (SIGNALS, {"signaled", "exited"}),
    "init": (INIT, {"signaled", "exited"}),
    "unlinked": (UNLINKED, {"disk_full", "exited", "oom", "timeout"}),
    "inodes": (INODES, {"disk_full", "exited", "oom", "timeout"}),
}

ENDLESS = {"output", "processes"}  # no limit ends these: they take both cores until their time is over


@everywhere
@pytest.mark.parametrize("attack", ATTACKS)
async def test_what_code_does_is_its_own_and_hurts_nobody_else(
    both: AttackerAndNeighbour, attack: str
) -> None:
    program, expected = ATTACKS[attack]
    # One that its limits end needs as long as the machine makes it: only those that go on for ever are ended by time.
    seconds = 3.0 if attack in ENDLESS else 6.0 if "timeout" in expected else 60.0
    answer = await both.attack(["python3", "-c", program], timeout=seconds)
    assert answer["verdict"] in expected <= OWN, answer
    await both.unharmed(full="disk_full" in expected)
    ended = [event for event in both.attacker.webhooks.events if event["event"] == "ended"]
    assert ended == []


@everywhere
async def test_who_kills_its_init_in_a_loop_gets_no_verdict_but_its_own(both: AttackerAndNeighbour) -> None:
    """Linux keeps a PID 1 from its own children. gVisor does not, and a sandbox that does nothing else ends by it."""
    both.attacker.webhooks.answering.clear()  # it exits once its end is heard, and would be gone before the next command
    # gVisor's sandbox ends by six within ten seconds, which are more on a busy machine.
    for _ in range(60 if isinstance(both.attacker, NetworkedGvisorSidecar) else 10):
        request = both.attacker.call("POST", "/v1/exec", json={"command": "kill -9 1; exit 3"})
        answer = await request
        if answer.status_code == 410:
            assert isinstance(both.attacker, NetworkedGvisorSidecar)
            assert answer.json()["verdict"] == "init_killed", answer.text
            both.attacker.webhooks.answering.set()
            ended = await both.attacker.webhooks.wait("ended")
            assert ended["verdict"] == "init_killed"
            return
        told = answer.json()
        assert (told["verdict"], told["exit_code"]) in (("exited", 3), ("signaled", 137)), told
    both.attacker.webhooks.answering.set()
    assert not isinstance(both.attacker, NetworkedGvisorSidecar)
    await both.unharmed()
