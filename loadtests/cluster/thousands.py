"""Thousands of sandboxes at once, each with a command in flight, through two gateways of which one is killed.

A real API server, kube-scheduler and controller, two real gateways behind one address, Sandlot's own client. Nodes and
pods are kwok's, and stubs serve all sidecars and send their webhooks.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle

from sandlot import AsyncClient, AsyncSandbox
from sandlot.errors import SandlotError
from sandlot_contract.names import API_VERSION, POOL_KIND
from sandlot_kube import paths
from sandlot_kube.answers import read
from sandlot_kube.client import KubeClient
from sandlot_kube.objects import Sandbox, SandboxPhase

from loadtests.cluster import api_requests, one_address, parts
from loadtests.cluster.control_plane import ROOM
from loadtests.cluster.image_claims import millicores
from loadtests.cluster.several_gateways import HOSTS, PORT, WEBHOOKS, Gateways
from loadtests.cluster.sidecar_process import Sidecars
from loadtests.cluster.simulated_cluster import SimulatedCluster, measured
from loadtests.cluster.stub_commands import HOLD
from loadtests.cluster.thousands_rows import CONTROLLER, Found, Moment, Times, rows
from loadtests.reading import Reading
from tests.kube.apiserver import ApiServer

IMAGE = "python:3.12"
PER_NODE = 10  # sandboxes
_TEMPLATE = {"image": IMAGE, "cpu": 1, "memory": 1 << 30, "disk": 5 << 30, "pids": 1024}
_LONGEST = 1_500.0  # seconds for the whole run
_SPARE = f"{HOLD} spare"  # commands that end before the kill: for them the other gateway has no files


@dataclass(frozen=True, slots=True)
class Size:
    sandboxes: int = 10_000
    callers: int = 64  # of creates, short commands and deletes
    seconds: float = 10.0  # of short commands, before and while the others are in flight
    files: int = 20_000  # that a gateway may have open, as many as a process of a small machine may

    @property
    def survivable(self) -> int:
        """The commands that one gateway may have: each has two connections, and a tenth of its files is for all else."""
        return min(self.sandboxes, (self.files - max(60, self.files // 10)) // 2)


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
    stub = await cluster.start_stub_processes(webhooks=WEBHOOKS)
    gateways = Gateways(
        cluster.directory, cluster.server, cluster.namespace, secrets.token_hex(16), size.files
    )
    await cluster.stack.enter_async_context(gateways.running())
    controller = await cluster.start_controller(retention=3600.0)
    api = AsyncClient(url=f"http://{one_address.HOST}:{PORT}", api_key=gateways.api_key)
    await cluster.stack.enter_async_context(api)
    run = _Run(size, cluster.server, cluster.client, cluster.namespace, gateways, controller, stub, api)
    return rows(await run.found())


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

    async def found(self) -> Found:
        moments = {"empty": await self._look()}
        await self._fill()
        moments["filled"], writes = await self._look(), self._writes()
        creates = await self._calls(self._create for _ in range(self.size.sandboxes))
        moments["created"] = await self._look()
        # The first one of a sandbox asks for its token and opens connections.
        first = await self._calls(partial(self._command, box, "true") for box in self.boxes)
        moments["first"] = await self._look()
        quiet = await self._short()
        moments["quiet"] = await self._look()
        held = self._start(self.boxes[: self.size.survivable], HOLD)
        spare = self._start(self.boxes[self.size.survivable :], _SPARE)
        await self._until_attached(len(self.boxes), lost=0)
        moments["attached"], in_flight = await self._look(), (await self.sidecars.count()).held
        busy = await self._short()
        moments["busy"], memory = await self._look(), self._memory()
        await self.sidecars.release(_SPARE)
        await asyncio.gather(*spare)
        survived = (await self.sidecars.count()).held
        reattached = await self._kill()
        survivor = self.gateways.parts[0].process.memory_info().rss
        await self.sidecars.release(HOLD)
        await asyncio.gather(*held)
        count = await self.sidecars.count()
        again = await self.gateways.start_again(sandboxes=self.size.sandboxes)
        moments["ended"] = await self._look()
        deletes = await self._calls(box.delete for box in self.boxes)
        await self._until_settled()
        moments["deleted"] = await self._look()
        return Found(
            sandboxes=self.size.sandboxes,
            moments=moments,
            creates=creates,
            first=first,
            quiet=quiet,
            busy=busy,
            deletes=deletes,
            in_flight=in_flight,
            survived=survived,
            commands=self.commands,
            runs=count.runs,
            lost=self.lost,
            memory=memory,
            survivor=survivor,
            reattached=reattached,
            again=again,
            writes=self._writes() - writes,
        )

    async def _fill(self) -> None:
        body = {
            "apiVersion": API_VERSION,
            "kind": POOL_KIND,
            "metadata": {"name": "thousands"},
            "spec": {"size": self.size.sandboxes, "template": _TEMPLATE},
        }
        await self.client.request("POST", paths.pools(self.namespace), body=body)
        await parts.until(lambda: self.gateways.all_warm(self.size.sandboxes))

    async def _calls(self, calls: Iterable[Callable[[], Awaitable[object]]]) -> Times:
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
        return Times(sorted(took), time.monotonic() - begun)

    async def _create(self) -> None:
        self.boxes.append(await AsyncSandbox.create(image=IMAGE, pool="thousands", client=self.api))

    async def _short(self) -> Times:
        """Run short commands in all sandboxes in turn."""
        until = time.monotonic() + self.size.seconds

        def calls() -> Iterator[Callable[[], Awaitable[None]]]:
            for box in cycle(self.boxes):
                if time.monotonic() > until:
                    return
                yield partial(self._command, box, "true")

        return await self._calls(calls())

    def _start(self, boxes: Iterable[AsyncSandbox], command: str) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self._command(box, command)) for box in boxes]

    async def _command(self, box: AsyncSandbox, command: str) -> None:
        self.commands += 1
        try:
            result = await box.exec(command)
        except SandlotError as error:
            self.lost.append(f"{type(error).__name__}: {error}")
        else:
            if not result.ok:
                self.lost.append(f"{result.verdict}: {result.message}")

    async def _until_attached(self, commands: int, *, lost: int, dropped: int = 0) -> None:
        """Wait until so many connections of commands are closed, and so many commands have callers or were lost since."""

        async def attached() -> bool:
            count = await self.sidecars.count()
            return count.dropped >= dropped and count.attached + len(self.lost) - lost >= commands

        await parts.until(attached, pause=0.1)

    async def _kill(self) -> float:
        """Kill a gateway; return the seconds until all commands have their callers again."""
        share = int(await self.gateways.parts[-1].number("sandlot_running"))
        before, lost = await self.sidecars.count(), len(self.lost)
        killed = time.monotonic()
        await self.gateways.kill_last()
        # Until the stubs have seen the dead one's connections close, its commands seem to have callers.
        await self._until_attached(before.attached, lost=lost, dropped=before.dropped + share)
        return time.monotonic() - killed

    async def _until_settled(self) -> None:
        """Wait until all that the deletes left to do is done: each record has its end, and the pool is full again."""

        async def ended() -> bool:
            path = paths.sandboxes(self.namespace)
            async for page in self.client.pages(path, limit=1_000, timeout=60.0):
                if any(
                    read(item, Sandbox).status.phase is not SandboxPhase.ENDED for item in page.items or ()
                ):
                    return False
            return True

        await parts.until(lambda: self.gateways.all_warm(self.size.sandboxes))
        await parts.until(ended, pause=2.0)

    async def _look(self) -> Moment:
        cpu = {name: parts.cpu(part.process) for name, part in self._processes().items()}
        return Moment(time.monotonic(), cpu, await api_requests.look(self.client))

    def _writes(self) -> Counter[str]:
        return parts.writes(self.server, namespace=self.namespace)

    def _memory(self) -> dict[str, int]:
        return {name: part.process.memory_info().rss for name, part in self._processes().items()}

    def _processes(self) -> dict[str, parts.Part]:
        return {**dict(zip(HOSTS, self.gateways.parts, strict=True)), CONTROLLER: self.controller}
