"""A sandbox that attacks and its neighbour, both called meanwhile, in each shape that a sandbox can have."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from tests.cable import Cable
from tests.complaints import WARNINGS_SHOWN
from tests.executor.container import Container
from tests.executor.gvisor import GvisorPod
from tests.sidecar.gvisor_sidecar import PORT, NetworkedGvisorSidecar
from tests.sidecar.pod_sidecar import PodSidecar
from tests.sidecar.processes import resident
from tests.sidecar.support import Sidecar, plain_client

MOST_GROWTH = 32 << 20  # bytes of a sidecar's own memory
SLOWEST = 30.0  # seconds of a call to the attacked sandbox or its neighbour, on a machine that others use too
LIMITS = {"memory": 512 << 20, "pids": 256, "disk": 64 << 20}
# As the controller limits a pod with its own kernel: memoryHeadroom and sidecarMemoryLimit are above the claim's limit.
MOST_OF_POD = LIMITS["memory"] + (512 << 20)
# As many Pythons as there can be, of 3 MiB each, may fill a pod before the watch has its turn: the node ends it as `oom`
# then (docs/adr/0020), and there is nobody left to ask. In this one there is always room for them.
ROOM_FOR_ALL_PROCESSES = 1792 << 20


class WiredPod(PodSidecar):
    """A sidecar in a network of its own with its sandbox, as in a cluster: it is called from elsewhere."""

    def __init__(self, container: Container, net: Cable) -> None:
        super().__init__(container)
        self.net = net
        self.config["listen"] = f"0.0.0.0:{PORT}"

    async def launch(self) -> None:
        await self.reconnect(f"http://{self.net.inside}:{PORT}")
        environment = {
            "SANDLOT_SIDECAR_CONFIG": json.dumps(self.config),
            "PATH": os.environ["PATH"],
            **WARNINGS_SHOWN,
        }
        with self.stderr.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                "nsenter", f"--net={self.net.path}", sys.executable, "-m", "sandlot_sidecar", "--config-env",
                env=environment, stderr=log, stdout=log, cwd="/",
            )  # fmt: skip


class AttackerAndNeighbour:
    """A sandbox that attacks, and its neighbour."""

    def __init__(self, attacker: Sidecar, neighbour: Sidecar, *, url: str | None) -> None:
        self.attacker = attacker
        self.neighbour = neighbour
        self.url = url  # of the attacker's sidecar, for its gateway
        self._before = resident(attacker.pid)
        self.slowest = 0.0

    async def attack(self, command: str | list[str], *, timeout: float = 20.0) -> dict[str, Any]:
        """Run it there as root; both sandboxes are called until it has ended."""
        running = asyncio.create_task(self.attacker.exec(command, timeout=timeout))
        while not running.done():
            await self._call(self.neighbour)
            await self._ask()
            self._check_memory()
            await asyncio.wait([running], timeout=0.1)
        return running.result()

    async def _call(self, box: Sidecar) -> None:
        before = time.monotonic()
        answer = await box.exec("echo calm", timeout=SLOWEST)
        assert answer["stdout"] == "calm\n", answer
        self.slowest = max(self.slowest, time.monotonic() - before)

    async def _ask(self) -> None:
        """With the token, over a connection of its own, which nothing may push out."""
        before = time.monotonic()
        socket = None if self.url else self.attacker.socket
        async with plain_client(socket, self.url, timeout=SLOWEST) as fresh:
            state = await fresh.get("/v1/state", headers={"Authorization": f"Bearer {self.attacker.token}"})
        assert state.json()["phase"] == "claimed", state.text
        self.slowest = max(self.slowest, time.monotonic() - before)

    def _check_memory(self) -> None:
        if isinstance(self.attacker, NetworkedGvisorSidecar):
            # There the sidecar and the sandbox are memory of one process; the node kills it at the pod's limit.
            assert self.attacker.pod.kills == 0, self.attacker.pod.killed
        else:
            assert resident(self.attacker.pid) - self._before < MOST_GROWTH

    async def unharmed(self, *, full: bool = False) -> None:
        """Both are as they were before.

        `full`: it left its disk over the limit. A measurement that comes after its end kills what runs then, once.
        """
        if full:
            answer = await self.attacker.exec("echo calm", timeout=SLOWEST)
            assert answer["verdict"] in {"exited", "disk_full"}, answer
        await self._call(self.attacker)
        await self._call(self.neighbour)
        self._check_memory()
        assert self.slowest < SLOWEST


async def start_local(made: list[tuple[Sidecar, Callable[[], None]]]) -> Sidecar:
    box = Sidecar(limits={"cpu": 1.0, **LIMITS})
    made.append((box, lambda: None))
    await box.start()
    await box.claim()
    return box


async def start_in_container(made: list[tuple[Sidecar, Callable[[], None]]], net: Cable) -> Sidecar:
    kinds = [{"type": kind} for kind in ("mount", "uts", "ipc", "cgroup")]
    container = Container(linux={"namespaces": [*kinds, {"type": "network", "path": net.path}]})
    box = WiredPod(container, net)
    made.append((box, container.close))
    await asyncio.to_thread(container.start)
    await box.start()
    await box.claim(limits=LIMITS)
    return box


async def start_in_gvisor(
    made: list[tuple[Sidecar, Callable[[], None]]], net: Cable, *, memory: int = MOST_OF_POD
) -> Sidecar:
    pod = GvisorPod(network=net.path, memory=memory)
    box = NetworkedGvisorSidecar(pod, net)
    made.append((box, pod.close))
    await asyncio.to_thread(pod.start)
    await box.start()
    await box.claim(limits=LIMITS)
    return box
