"""Nodes that follow demand: callers come and go in waves, the real controller makes and gives back pods, and a program with
cluster-autoscaler's rules adds and removes kwok's nodes. In between a node is drained while all of its slots are in use.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sandlot import AsyncClient
from sandlot_contract.names import API_VERSION, POOL_KIND
from sandlot_grade.report.stats import percentile
from sandlot_kube import paths
from sandlot_kube.client import MERGE_PATCH

from loadtests.cluster import parts
from loadtests.cluster.control_plane import ROOM
from loadtests.cluster.demand_waves import Callers
from loadtests.cluster.image_claims import millicores
from loadtests.cluster.movable_pods import CONTROLLERS, MILLICORES, make_movable
from loadtests.cluster.node_autoscaler import NodeAutoscaler, Rules
from loadtests.cluster.pod_watch import PodWatch
from loadtests.cluster.simulated_cluster import SCHEDULED, SimulatedCluster, measured
from loadtests.reading import Reading

ROWS = ("lost", "up_wait", "freed", "drained", "node_time")
PROGRAMS = (*SCHEDULED, "kube-controller-manager")
IMAGE, POOL = "python:3.12", "waves"
_TEMPLATE = {"image": IMAGE, "cpu": 1, "memory": 1 << 30, "disk": 5 << 30, "pids": 1024}
_MOVABLE = 3
_CLAIMED_PER_WARM = 4  # as docs/pool-scaling.md has an autoscaler of pools set the size
_LEAST_WARM = 2
_STARTS = 64  # of a gateway at once, as the chart has it


@dataclass(frozen=True, slots=True)
class Wave:
    sandboxes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Size:
    """`waves` go up and down in turn; `grace`: the controller's surplus grace; `longest`: seconds for the whole run.

    `own_size`: the controller sets the pool's size, by `minSize` and `maxSize`; else the load test does.
    """

    waves: tuple[Wave, ...] = (Wave(60, 120.0), Wave(6, 180.0), Wave(90, 120.0), Wave(6, 180.0))
    per_node: int = 10  # sandboxes
    command: float = 2.0  # seconds of a command, of which each sandbox has two
    delay: float = 20.0  # seconds until a node that is wanted is there
    unneeded: float = 10.0  # seconds after which an unneeded node goes
    grace: float = 60.0
    own_size: bool = False
    longest: float = 1_200.0


async def autoscale(size: Size = Size()) -> dict[str, Reading]:
    """Measure the rows of this file. Raises RuntimeError if it takes too long, or where it cannot run."""
    what = f"waves of up to {max(wave.sandboxes for wave in size.waves)} sandboxes"
    return await measured(
        lambda cluster: _measured(cluster, size),
        name="autoscale",
        what=what,
        longest=size.longest,
        programs=PROGRAMS,
    )


async def _measured(cluster: SimulatedCluster, size: Size) -> dict[str, Reading]:
    # Room for the sandboxes and one of the pods beside them.
    room = {**ROOM, "cpu": f"{millicores() * size.per_node + MILLICORES}m"}
    rules = Rules(room=room, delay=size.delay, unneeded=size.unneeded)
    autoscaler = NodeAutoscaler(cluster.client, rules)
    await autoscaler.add()
    cluster.start_kwok()
    cluster.start_scheduler()
    cluster.start_controller_manager(*CONTROLLERS)
    await make_movable(cluster.client, cluster.server.namespace("beside"), count=_MOVABLE)
    watch = await cluster.start_stubs()
    gateway = await cluster.start_gateway(options=("--max-starts", str(_STARTS)))
    settings = {"SANDLOT_SURPLUS_GRACE": str(size.grace)}
    await cluster.start_controller(retention=60.0, settings=settings)
    api = await cluster.stack.enter_async_context(AsyncClient(url=gateway.url, api_key=gateway.api_key))
    callers = Callers(api, IMAGE, POOL, size.command)
    run = _Run(size, cluster, watch, autoscaler, callers)
    async with autoscaler.running(), callers.calling():
        return await run.rows()


@dataclass(frozen=True, slots=True)
class _Moment:
    at: float  # seconds since the start
    nodes: int
    owned: int
    warm: int


@dataclass(frozen=True, slots=True)
class Freed:
    """Seconds after a wave until no node was idle, the nodes that were left at its end, and the fewest that would do."""

    took: float
    left: int
    fewest: int


@dataclass
class _Run:
    size: Size
    cluster: SimulatedCluster
    watch: PodWatch
    autoscaler: NodeAutoscaler
    callers: Callers
    moments: list[_Moment] = field(default_factory=list[_Moment])
    up_waits: list[float] = field(default_factory=list[float])
    freed: list[Freed] = field(default_factory=list["Freed"])
    begun: float = field(default_factory=time.monotonic)

    async def rows(self) -> dict[str, Reading]:
        await self._make_pool()
        drained = 0.0
        async with self._following():
            before = 0
            for number, wave in enumerate(self.size.waves):
                if wave.sandboxes > before:
                    await self._up(wave)
                    if number == 0:
                        drained = await self._drain()
                else:
                    await self._down(wave, rest=number + 1 < len(self.size.waves))
                before = wave.sandboxes
            await self.callers.want(0)
        return self._readings(drained)

    async def _make_pool(self) -> None:
        most = max(wave.sandboxes for wave in self.size.waves)
        own = {"minSize": _LEAST_WARM, "maxSize": most}
        body = {
            "apiVersion": API_VERSION,
            "kind": POOL_KIND,
            "metadata": {"name": POOL},
            "spec": {"template": _TEMPLATE, **(own if self.size.own_size else {"size": _LEAST_WARM})},
        }
        await self.cluster.client.request("POST", paths.pools(self.cluster.namespace), body=body)

    @asynccontextmanager
    async def _following(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _follow(self) -> None:
        """Set the pool's size by the sandboxes in use, as an autoscaler of pools does, and note what is there."""
        set_to = _LEAST_WARM
        where = paths.pools(self.cluster.namespace, POOL)
        while True:
            owned = len(self.watch.stub.owned())
            wanted = max(_LEAST_WARM, math.ceil(owned / _CLAIMED_PER_WARM))
            if wanted != set_to and not self.size.own_size:
                body = {"spec": {"size": wanted}}
                await self.cluster.client.request("PATCH", where, body=body, content_type=MERGE_PATCH)
                set_to = wanted
            nodes = len(self.autoscaler.nodes())
            self.moments.append(_Moment(self._now(), nodes, owned, len(self.watch.nodes) - owned))
            await asyncio.sleep(1.0)

    def _now(self) -> float:
        return time.monotonic() - self.begun

    # Waves.

    async def _up(self, wave: Wave) -> None:
        begun = time.monotonic()
        await self.callers.want(wave.sandboxes)
        await parts.until(lambda: self._owned(wave.sandboxes), pause=0.2)
        took = time.monotonic() - begun
        # The first create of each caller; one that waited is over by now.
        first = sorted(one.took for one in self.callers.creates if one.asked >= begun)
        self.up_waits += first
        await asyncio.sleep(max(0.0, wave.seconds - took))
        self.callers.check()

    async def _owned(self, sandboxes: int) -> bool:
        """Return whether nearly all callers have a sandbox: some are between two."""
        self.callers.check()
        return len(self.watch.stub.owned()) >= 0.9 * sandboxes

    async def _down(self, wave: Wave, *, rest: bool) -> None:
        """Note how long it takes until no node is idle; what is still used is left to the next wave.

        `rest`: return only when the wave's time is over.
        """
        await self.callers.want(wave.sandboxes)
        begun = time.monotonic()
        most = wave.sandboxes + max(_LEAST_WARM, math.ceil(wave.sandboxes / _CLAIMED_PER_WARM))

        async def freed() -> bool:
            self.callers.check()
            used = set(self.watch.nodes.values())
            # Beyond the size there may be the replacement of a pod that goes.
            return len(self.watch.nodes) <= most + 1 and self.autoscaler.nodes() <= used

        try:
            async with asyncio.timeout(wave.seconds):
                await parts.until(freed, pause=0.2)
        except TimeoutError:
            self.freed.append(Freed(math.inf, len(self.autoscaler.nodes()), self._fewest(most)))
            return
        took = time.monotonic() - begun
        if rest:
            await asyncio.sleep(max(0.0, wave.seconds - took))
        self.freed.append(Freed(took, len(self.autoscaler.nodes()), self._fewest(most)))

    def _fewest(self, sandboxes: int) -> int:
        return math.ceil(sandboxes / self.size.per_node)

    async def _drain(self) -> float:
        """Cordon the node with the most sandboxes in use; return the seconds until it has no sandbox's pod."""
        owned = self.watch.stub.owned()
        at = [self.watch.nodes[pod] for pod in owned if pod in self.watch.nodes]
        node = max(set(at), key=at.count)
        begun = time.monotonic()
        await self.autoscaler.cordon(node)

        async def empty() -> bool:
            self.callers.check()
            return node not in self.watch.nodes.values()

        await parts.until(empty, pause=0.2)
        took = time.monotonic() - begun
        await self.autoscaler.remove(node)
        return took

    # Readings.

    def _readings(self, drained: float) -> dict[str, Reading]:
        scaler, waits = self.autoscaler, sorted(self.up_waits)
        sandboxes = [pod for pod in scaler.evicted if pod.startswith("i-")]
        needed = sum(math.ceil(one.owned / self.size.per_node) for one in self.moments)
        lost = {"first": self.callers.lost[0][:160]} if self.callers.lost else {}
        return {
            "lost": Reading(
                value=len(self.callers.lost) + len(sandboxes),
                parts={
                    "sandboxes": str(len(self.callers.creates)),
                    "commands": str(self.callers.commands),
                    "nodes added": str(scaler.added),
                    "nodes removed": str(scaler.removed),
                    "removals given up": str(scaler.given_back),
                    "pods evicted": f"{len(scaler.evicted)}, of sandboxes {len(sandboxes)}",
                    **lost,
                },
            ),
            "up_wait": Reading(
                value=percentile(waits, 0.99) / self.size.delay,
                parts={
                    "creates": str(len(waits)),
                    "p50": f"{percentile(waits, 0.5):.2f} s",
                    "p99": f"{percentile(waits, 0.99):.1f} s",
                    "a node comes after": f"{self.size.delay:g} s",
                    "starts of a node at once": str(self.watch.most_starting),
                },
                curves={"create": waits},
            ),
            "freed": Reading(
                value=max(one.took for one in self.freed),
                parts={
                    "each": ", ".join(f"{one.took:.0f} s" for one in self.freed),
                    "nodes left": ", ".join(str(one.left) for one in self.freed),
                    "that would do": ", ".join(str(one.fewest) for one in self.freed),
                },
            ),
            "drained": Reading(
                value=drained,
                parts={"a sandbox is in use for": f"{self.callers.longest:g} s"},
            ),
            "node_time": Reading(
                value=sum(one.nodes for one in self.moments) / max(1, needed),
                parts={"nodes, sandboxes in use, warm": self._table()},
            ),
        }

    def _table(self) -> str:
        every = max(1, len(self.moments) // 24)
        return "; ".join(
            f"{one.at:.0f} s: {one.nodes}, {one.owned}, {one.warm}" for one in self.moments[::every]
        )
