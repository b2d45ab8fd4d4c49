"""Thousands of sandboxes at once, each with a command in flight, through two gateways of which one is killed.

A real API server, kube-scheduler and controller, two real gateways behind one address, Sandlot's own client. Nodes and
pods are kwok's, and one stub serves all sidecars.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle

from sandlot import AsyncClient, AsyncSandbox
from sandlot.errors import SandlotError
from sandlot_contract.names import API_VERSION, POOL_KIND
from sandlot_grade.report.stats import percentile
from sandlot_kube import paths
from sandlot_kube.client import KubeClient

from loadtests.cluster import one_address, parts
from loadtests.cluster.control_plane import ROOM
from loadtests.cluster.image_claims import millicores
from loadtests.cluster.several_gateways import HOSTS, PORT, Gateways
from loadtests.cluster.sidecar_process import Sidecars
from loadtests.cluster.simulated_cluster import SimulatedCluster, measured
from loadtests.cluster.stub_commands import HOLD
from loadtests.reading import Reading
from tests.kube.apiserver import ApiServer

ROWS = (
    "lost",
    "create",
    "exec_in_flight",
    "reattached",
    "delete",
    "gateway_memory",
    "controller_memory",
    "writes",
)
IMAGE = "python:3.12"
PER_NODE = 10  # sandboxes
_TEMPLATE = {"image": IMAGE, "cpu": 1, "memory": 1 << 30, "disk": 5 << 30, "pids": 1024}
_LONGEST = 1_500.0  # seconds for the whole run
_MEBI = 1 << 20


@dataclass(frozen=True, slots=True)
class Size:
    sandboxes: int = 10_000
    callers: int = 64  # of creates, short commands and deletes
    seconds: float = 10.0  # of short commands, before and while the others are in flight
    files: int = 20_000  # that a gateway may have open

    @property
    def in_flight(self) -> int:
        """The most commands that one gateway may have: each has two connections, and a tenth is for all else."""
        return min(self.sandboxes, int(self.files * 0.9) // 2)


async def thousands(size: Size = Size()) -> dict[str, Reading]:
    """Measure the rows of this file. Raises RuntimeError if it takes too long, or where it cannot run."""
    what = f"{size.sandboxes} sandboxes"
    return await measured(
        lambda cluster: _measured(cluster, size), name="thousands", what=what, longest=_LONGEST
    )


async def _measured(cluster: SimulatedCluster, size: Size) -> dict[str, Reading]:
    # Room for the sandboxes and nothing else: one that has an owner has no replacement.
    room = {**ROOM, "cpu": f"{millicores() * PER_NODE}m"}
    await cluster.make_nodes(-(-size.sandboxes // PER_NODE), room=room)
    cluster.start_kwok()
    cluster.start_scheduler()
    stub = await cluster.start_stub_processes()
    gateways = Gateways(
        cluster.directory, cluster.server, cluster.namespace, secrets.token_hex(16), size.files
    )
    await cluster.stack.enter_async_context(gateways.running())
    controller = await cluster.start_controller(retention=3600.0)
    api = AsyncClient(url=f"http://{one_address.HOST}:{PORT}", api_key=gateways.api_key)
    await cluster.stack.enter_async_context(api)
    return await _Run(
        size, cluster.server, cluster.client, cluster.namespace, gateways, controller, stub, api
    ).rows()


@dataclass(frozen=True, slots=True)
class _Times:
    """Sorted seconds of calls, and how long they took together."""

    each: list[float]
    wall: float

    def parts(self, what: str) -> dict[str, str]:
        told = {f"{what}s/s": f"{len(self.each) / self.wall:.0f}"}
        return told | {
            f"{what} p{share * 100:.0f}": f"{percentile(self.each, share) * 1000:.0f} ms"
            for share in (0.5, 0.99)
        }


@dataclass
class _Run:
    size: Size
    server: ApiServer
    client: KubeClient
    namespace: str
    gateways: Gateways
    controller: parts.Part
    sidecars: Sidecars
    api: AsyncClient
    boxes: list[AsyncSandbox] = field(default_factory=list[AsyncSandbox])
    commands: int = 0  # that were asked for
    lost: list[str] = field(default_factory=list[str])

    async def rows(self) -> dict[str, Reading]:
        begun = time.monotonic()
        await self._fill()
        filled, writes, used = (
            time.monotonic() - begun,
            parts.writes(self.server, namespace=self.namespace),
            self._cpu(),
        )
        creates = await self._calls(self._create for _ in range(self.size.sandboxes))
        created = self._cpu()
        # The first one of a sandbox asks for its token and opens connections.
        first = await self._calls(partial(self._command, box, "true") for box in self.boxes)
        before = await self._short()
        held = [asyncio.create_task(self._held(box)) for box in self.boxes[: self.size.in_flight]]
        await self._until_attached()
        beside = await self._short()
        memory = self._memory()
        reattached = await self._kill()
        await self.sidecars.release()
        await asyncio.gather(*held)
        count = await self.sidecars.count()
        again = await self.gateways.start_again(sandboxes=self.size.sandboxes)
        deletes = await self._calls(box.delete for box in self.boxes)
        made = parts.writes(self.server, namespace=self.namespace) - writes
        twice = max(0, count.runs - self.commands)
        cost = {
            f"{name}'s CPU a create": f"{(created[name] - used[name]) / self.size.sandboxes * 1000:.2f} ms"
            for name in used
        }
        quiet, busy = (percentile(one.each, 0.5) for one in (before, beside))
        told = {name: f"{count / self.size.sandboxes:.2f}" for name, count in made.most_common()}
        return {
            "lost": Reading(
                value=len(self.lost) + twice,
                parts={
                    "commands": str(self.commands),
                    "in flight": str(self.size.in_flight),
                    "run twice": str(twice),
                    **({"lost": self.lost[0][:120]} if self.lost else {}),
                },
            ),
            "create": Reading(
                value=percentile(creates.each, 0.99),
                parts={**creates.parts("create"), **cost, "all claimable after": f"{filled:.0f} s"},
                curves={"create": creates.each},
            ),
            "exec_in_flight": Reading(
                value=busy / quiet,
                parts={
                    **first.parts("first exec"),
                    **beside.parts("exec"),
                    **{f"without: {a}": b for a, b in before.parts("exec").items()},
                },
                curves={"with all in flight": beside.each, "without": before.each},
            ),
            "reattached": Reading(
                value=reattached, parts={"the killed gateway was back, and knew all, after": f"{again:.1f} s"}
            ),
            "delete": Reading(
                value=percentile(deletes.each, 0.99),
                parts=deletes.parts("delete"),
                curves={"delete": deletes.each},
            ),
            "gateway_memory": Reading(
                value=max(memory[name] for name in HOSTS) / _MEBI,
                parts={name: f"{memory[name] / _MEBI:.0f} MiB" for name in HOSTS},
            ),
            "controller_memory": Reading(value=memory["controller"] / _MEBI),
            "writes": Reading(value=made.total() / self.size.sandboxes, parts=told),
        }

    async def _fill(self) -> None:
        body = {
            "apiVersion": API_VERSION,
            "kind": POOL_KIND,
            "metadata": {"name": "thousands"},
            "spec": {"size": self.size.sandboxes, "template": _TEMPLATE},
        }
        await self.client.request("POST", paths.pools(self.namespace), body=body)
        await parts.until(lambda: self.gateways.all_warm(self.size.sandboxes))

    async def _calls(self, calls: Iterable[Callable[[], Awaitable[object]]]) -> _Times:
        """Make the calls, `callers` at a time. Raises SandlotError if one fails."""
        left, took, begun = iter(calls), list[float](), time.monotonic()

        async def caller() -> None:
            for call in left:
                asked = time.monotonic()
                await call()
                took.append(time.monotonic() - asked)

        async with asyncio.TaskGroup() as callers:
            for _ in range(self.size.callers):
                callers.create_task(caller())
        return _Times(sorted(took), time.monotonic() - begun)

    async def _create(self) -> None:
        self.boxes.append(await AsyncSandbox.create(image=IMAGE, pool="thousands", client=self.api))

    async def _short(self) -> _Times:
        """Run short commands in all sandboxes in turn."""
        until = time.monotonic() + self.size.seconds

        def calls() -> Iterator[Callable[[], Awaitable[None]]]:
            for box in cycle(self.boxes):
                if time.monotonic() > until:
                    return
                yield partial(self._command, box, "true")

        return await self._calls(calls())

    async def _held(self, box: AsyncSandbox) -> None:
        await self._command(box, HOLD)

    async def _command(self, box: AsyncSandbox, command: str) -> None:
        self.commands += 1
        try:
            result = await box.exec(command)
        except SandlotError as error:
            self.lost.append(f"{type(error).__name__}: {error}")
        else:
            if not result.ok:
                self.lost.append(f"{result.verdict}: {result.message}")

    async def _until_attached(self) -> None:
        async def attached() -> bool:
            count = await self.sidecars.count()
            return count.attached + len(self.lost) >= self.size.in_flight

        await parts.until(attached, pause=0.1)

    async def _kill(self) -> float:
        """Kill a gateway; return the seconds until all commands have their callers again."""
        killed = time.monotonic()
        await self.gateways.kill_last()
        await self._until_attached()
        return time.monotonic() - killed

    def _processes(self) -> dict[str, parts.Part]:
        return {**dict(zip(HOSTS, self.gateways.parts, strict=True)), "controller": self.controller}

    def _cpu(self) -> dict[str, float]:
        return {name: parts.cpu(part.process) for name, part in self._processes().items()}

    def _memory(self) -> dict[str, int]:
        return {name: part.process.memory_info().rss for name, part in self._processes().items()}
