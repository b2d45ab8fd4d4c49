"""Cold starts on nodes that can start so many a second: below that rate creates are soon ready, above it their place in the
queue and the estimate of a refusal are told, and true.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from sandlot import AsyncClient, AsyncSandbox
from sandlot.errors import Busy
from sandlot_controller.settings import Settings
from sandlot_grade.report.stats import percentile

from loadtests.cluster.pod_watch import PodWatch
from loadtests.cluster.simulated_cluster import ANY_POD, SimulatedCluster, measured
from loadtests.reading import Reading

ROWS = ("start_ready_p99", "start_ready_told", "start_ready_starts")
IMAGE = "python:3.12"
_STARTS = 64  # of a gateway at once, as the chart has it
_LONGEST = 400.0  # seconds for the whole run
_LOOK = 0.5  # seconds between two looks at the queue
_CAP: int = Settings.model_fields["cold_starts_per_node"].default


@dataclass(frozen=True, slots=True)
class Size:
    """`below` and `above` are arrivals relative to what the nodes can start, each for some seconds."""

    nodes: int = 4
    start: float = 2.0  # seconds of a start
    below: tuple[float, float] = (0.5, 20.0)
    above: tuple[float, float] = (2.0, 12.0)
    most_waiting: int = 100  # creates

    @property
    def rate(self) -> float:
        """Return how many starts a second the nodes have."""
        return self.nodes * _CAP / self.start


async def start_ready(size: Size = Size()) -> dict[str, Reading]:
    """Measure the rows of this file. Raises RuntimeError if it takes too long, or where it cannot run."""
    what = f"{size.rate:g} cold starts a second"
    return await measured(
        lambda cluster: _measured(cluster, size), name="starts", what=what, longest=_LONGEST
    )


async def _measured(cluster: SimulatedCluster, size: Size) -> dict[str, Reading]:
    await cluster.make_nodes(size.nodes)
    cluster.start_kwok(stages=_slow(cluster.directory, size.start), at_once=32)
    cluster.start_scheduler()
    watch = await cluster.start_stubs()
    options = ("--max-starts", str(_STARTS), "--max-waiting", str(size.most_waiting))
    gateway = await cluster.start_gateway(options=options)
    await cluster.start_controller(retention=60.0)
    async with AsyncClient(url=gateway.url, api_key=gateway.api_key) as api:
        return await _Run(size, api, watch).rows()


def _slow(directory: Path, seconds: float) -> Path:
    """Return kwok's stages with pods that take so long to run."""
    stages = list(yaml.safe_load_all(ANY_POD.read_text()))
    for stage in stages:
        if stage["metadata"]["name"] == "running":
            stage["spec"]["delay"] = {"durationMilliseconds": int(seconds * 1000)}
    path = directory / "slow-stages.yaml"
    path.write_text(yaml.safe_dump_all(stages))
    return path


@dataclass(frozen=True, slots=True)
class _Place:
    """A create's place in the queue at one moment."""

    at: float
    sandbox: str
    place: int


@dataclass
class _Run:
    size: Size
    api: AsyncClient
    watch: PodWatch
    ready: dict[str, float] = field(default_factory=dict[str, float])  # sandbox -> when it was
    places: list[_Place] = field(default_factory=list[_Place])
    refused: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])  # when, estimate

    async def rows(self) -> dict[str, Reading]:
        below = await self._arrivals(*self.size.below)
        async with self._looking():
            above = await self._arrivals(*self.size.above)
        told = [self._served(one) / one.place for one in self.places if one.sandbox in self.ready]
        estimates = [estimate / actual for at, estimate in self.refused if (actual := self._wait(at))]
        share = min(_within(told), _within(estimates))
        return {
            "start_ready_p99": Reading(
                value=percentile(below, 0.99),
                parts={
                    "nodes can start": f"{self.size.rate:g}/s",
                    "creates": f"{len(below)}, {self.size.rate * self.size.below[0]:g}/s",
                    "p50": f"{percentile(below, 0.5):.1f} s",
                    "above, creates": f"{len(above)}, {self.size.rate * self.size.above[0]:g}/s",
                    "above, p50": f"{percentile(above, 0.5):.1f} s",
                },
                curves={"below what nodes can start": below, "above": above},
            ),
            "start_ready_told": Reading(
                value=share,
                parts={
                    "places told": str(len(told)),
                    "within 2 ×": f"{_within(told):.0%}",
                    "refused": str(len(self.refused)),
                    "estimates within 2 ×": f"{_within(estimates):.0%}",
                },
            ),
            "start_ready_starts": Reading(value=self.watch.most_starting / _CAP),
        }

    async def _arrivals(self, share: float, seconds: float) -> list[float]:
        """Create sandboxes at this share of the nodes' rate; return the sorted seconds until each was ready."""
        took, begun, rate = list[float](), time.monotonic(), self.size.rate * share

        async def use() -> None:
            asked = time.monotonic()
            try:
                box = await AsyncSandbox.create(image=IMAGE, client=self.api)
            except Busy:
                return
            now = time.monotonic()
            took.append(now - asked)
            self.ready[box.id] = now
            await box.delete()

        async with asyncio.TaskGroup() as group:
            for number in range(int(rate * seconds)):
                await asyncio.sleep(begun + number / rate - time.monotonic())
                group.create_task(use())
        return sorted(took)

    @asynccontextmanager
    async def _looking(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._look())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _look(self) -> None:
        """Note the places of all creates, and what a refused one is told."""
        query = {"status": "PENDING", "overview": "true", "per_page": 1000}
        while True:
            listed = await self.api.call("GET", "/sandbox", query=query)
            now = time.monotonic()
            for one in listed["sandboxes"]:
                if one.get("queuePosition"):
                    self.places.append(_Place(now, one["id"], one["queuePosition"]))
            if len(self.places) and self._queued(now) >= self.size.most_waiting:
                await self._probe()
            await asyncio.sleep(_LOOK)

    def _queued(self, at: float) -> int:
        return sum(one.at == at for one in self.places)

    async def _probe(self) -> None:
        """Ask for one more, which is refused while the queue is full."""
        body = {"docker_image": IMAGE, "wait_seconds": 0, "idempotency_key": f"probe-{len(self.refused)}"}
        asked = time.monotonic()
        try:
            await self.api.call("POST", "/sandbox", body=body, patience=0)
        except Busy as error:
            self.refused.append((asked, error.retry_after or 0.0))

    # What was true.

    def _served(self, place: _Place) -> int:
        """Return how many became ready from then on until this one."""
        return sum(place.at < at <= self.ready[place.sandbox] for at in self.ready.values())

    def _wait(self, at: float) -> float | None:
        """Return how long the last one in the queue of this moment waited."""
        before = [one for one in self.places if one.at <= at and one.sandbox in self.ready]
        if not before:
            return None
        last = max(before, key=lambda one: (one.at, one.place))
        return self.ready[last.sandbox] - at


def _within(ratios: list[float]) -> float:
    """Return the share of the ratios from 0.5 to 2; 0 if there are none."""
    return sum(0.5 <= one <= 2 for one in ratios) / len(ratios) if ratios else 0.0
