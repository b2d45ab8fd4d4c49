"""What code leaves behind in one generation is not there for the next, or was refused: in every shape of a sandbox.

docs/security.md lists each attack. The shapes: the local backend's, a container of runc's with a filter of system calls
as Kubernetes gives it, and a pod of gVisor's.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack

import pytest
import pytest_asyncio

from tests.cable import cable
from tests.executor.container import CAPABILITIES, FILTER, NEEDS_RUNC, Container
from tests.executor.gvisor import NEEDS_RUNSC, GvisorPod
from tests.ports import free_ports
from tests.sidecar.attacker import LIMITS, MOST_OF_POD, WiredPod
from tests.sidecar.calls import pass_on
from tests.sidecar.gvisor_sidecar import NetworkedGvisorSidecar
from tests.sidecar.leftover_files import FILES
from tests.sidecar.leftover_kernel import OBJECTS, SETTINGS
from tests.sidecar.leftover_network import CHANGES, SOCKETS
from tests.sidecar.leftover_processes import PROCESSES
from tests.sidecar.leftovers import GVISOR, LOCAL, PROGRAM, RUNC, Attack, packed
from tests.sidecar.support import Sidecar

pytestmark = pytest.mark.root

GVISOR_SHAPE = pytest.param(GVISOR, marks=[*NEEDS_RUNSC, pytest.mark.heavy])
everywhere = pytest.mark.parametrize("shape", [LOCAL, pytest.param(RUNC, marks=NEEDS_RUNC), GVISOR_SHAPE])
# Those that a pod of Sandlot's has.
WITHOUT_RAW = [name for name in CAPABILITIES if name != "CAP_NET_RAW"]
DISK = 64 << 20


@pytest_asyncio.fixture
async def box(shape: str) -> AsyncIterator[Sidecar]:
    """A claimed sandbox; in a pod with a network of its own, to which a cable leads."""
    async with AsyncExitStack() as stack:
        if shape == LOCAL:
            made = Sidecar()
        else:
            net = stack.enter_context(cable("l", network=18))
            if shape == RUNC:
                kinds = [{"type": kind} for kind in ("mount", "uts", "ipc", "cgroup")]
                container = Container(
                    seccomp=FILTER,
                    process={
                        "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), WITHOUT_RAW)
                    },
                    linux={"namespaces": [*kinds, {"type": "network", "path": net.path}]},
                )
                made = WiredPod(container, net)
            else:
                container = GvisorPod(network=net.path, memory=MOST_OF_POD, volume=DISK)
                made = NetworkedGvisorSidecar(container, net)
            stack.push_async_callback(asyncio.to_thread, container.close)
            await asyncio.to_thread(container.start)
        stack.push_async_callback(made.close)
        await made.start()
        await made.claim(limits={} if shape == LOCAL else LIMITS)
        yield made


async def run(box: Sidecar, shape: str, programs: dict[str, str], *, port: int) -> dict[str, str]:
    """What each of the programs says, run in one command."""
    written = await box.call("PUT", "/v1/files?path=/programs", content=packed(programs))
    assert written.status_code == 200, written.text
    answer = await box.exec(["python3", "-S", "-c", PROGRAM, "/programs", str(port), shape], timeout=150)
    assert (answer["verdict"], answer["exit_code"], answer["stderr"]) == ("exited", 0, ""), answer
    told = json.loads(answer["stdout"])
    assert list(told) == list(programs)
    return told


def unused_ports() -> int:
    """The first of ten ports; no ended connection waits at them either."""
    while True:
        ports = free_ports(10)
        with ExitStack() as stack:
            try:
                for port in ports:
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
        return ports[0]


async def check(box: Sidecar, shape: str, attacks: dict[str, Attack]) -> None:
    port = unused_ports()
    attacks = {name: attack for name, attack in attacks.items() if not (attack.ends and shape == GVISOR)}
    looks = {name: attack.look for name, attack in attacks.items()}
    fresh = await run(box, shape, looks, port=port)
    planted = await run(box, shape, {name: attack.plant for name, attack in attacks.items()}, port=port)
    seen = await run(box, shape, looks, port=port)
    await pass_on(box, limits={} if shape == LOCAL else LIMITS)
    after = await run(box, shape, {**looks, "processes": "see(others())"}, port=port)
    wrong = {}
    for name, attack in attacks.items():
        refused = shape in attack.refused
        if planted[name].startswith("refused ") is not refused or planted[name].startswith("broken "):
            wrong[name] = f"the plant said {planted[name]!r}"
        elif not refused and not attack.hidden and seen[name] == fresh[name]:
            wrong[name] = f"it is not seen in its own generation: {seen[name]!r}"
        elif after[name] != fresh[name] and not attack.stays:
            wrong[name] = (
                f"fresh: {fresh[name]!r}, planted: {seen[name]!r}, in the next generation: {after[name]!r}"
            )
        for told in (fresh, seen, after):
            if told[name].startswith(("broken ", "refused ")):
                wrong[name] = f"the look said {told[name]!r}"
    assert not wrong, json.dumps(wrong, indent=1)
    assert after["processes"] == "[]"


ALL = FILES | PROCESSES | SOCKETS | CHANGES | OBJECTS | SETTINGS


@everywhere
async def test_files_and_mounts_are_gone(box: Sidecar, shape: str) -> None:
    await check(box, shape, FILES)


@everywhere
async def test_processes_are_gone(box: Sidecar, shape: str) -> None:
    await check(box, shape, PROCESSES)


@everywhere
async def test_sockets_are_gone_and_the_network_is_as_before(box: Sidecar, shape: str) -> None:
    await check(box, shape, SOCKETS | CHANGES)


@everywhere
async def test_kernel_objects_are_gone_and_settings_are_as_before(box: Sidecar, shape: str) -> None:
    await check(box, shape, OBJECTS | SETTINGS)


@pytest.mark.parametrize("shape", [GVISOR_SHAPE])
@pytest.mark.parametrize("name", [name for name, attack in ALL.items() if attack.ends])
async def test_what_cannot_be_taken_back_ends_the_sandbox(box: Sidecar, shape: str, name: str) -> None:
    planted = await run(box, shape, {name: ALL[name].plant}, port=unused_ports())
    assert planted == {name: "nothing"}
    answer = (await box.instance("POST", "/v1/reset", json={"keep_claim": False})).json()
    assert (answer["equal"], answer["phase"]) == (False, "failed")
    assert [text for text in answer["proof"]["differences"] if text.startswith(ALL[name].ends)], answer
    assert (await box.webhooks.wait("ended"))["verdict"] == "reset_failed"
