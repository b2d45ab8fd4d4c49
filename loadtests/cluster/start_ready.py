"""Cold starts on nodes that can start so many a second: up to that rate creates are soon ready, above it their place in the
queue and the estimates of waits are told, and true.

What the nodes can start is measured first, with more than that arriving: a start takes longer than its pod needs.
"""

from __future__ import annotations

import asyncio
import math
import time
from bisect import bisect_right
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

ROWS = (
    "start_ready_p99",
    "start_ready_places",
    "start_ready_waits",
    "start_ready_refusals",
    "start_ready_starts",
)
IMAGE = "python:3.12"
_STARTS = 64  # of a gateway at once, as the chart has it
_LONGEST = 400.0  # seconds for the whole run
_LOOK = 0.5  # seconds between two looks at the queue
_CAP: int = Settings.model_fields["cold_starts_per_node"].default


@dataclass(frozen=True, slots=True)
class Size:
    """`half`, `above` and `full` are arrivals, each for some seconds: the first two relative to `rate`, the last to what the
    nodes did start in a second of `above`.
    """

    nodes: int = 4
    start: float = 2.0  # seconds of a start
    half: tuple[float, float] = (0.5, 20.0)
    above: tuple[float, float] = (2.0, 20.0)
    full: tuple[float, float] = (1.0, 40.0)
    most_waiting: int = 100  # creates

    @property
    def rate(self) -> float:
        """Return how many starts a second the nodes have, if a start takes no longer than its pod needs."""
        return self.at_once / self.start

    @property
    def at_once(self) -> int:
        return self.nodes * _CAP


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
    """A create's place in the queue at one moment, and in how many seconds it may be served, if that was told."""

    at: float
    sandbox: str
    place: int
    wait: float | None


@dataclass
class _Run:
    size: Size
    api: AsyncClient
    watch: PodWatch
    ready: dict[str, float] = field(default_factory=dict[str, float])  # sandbox -> when it was
    places: list[_Place] = field(default_factory=list[_Place])
    refused: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])  # when, estimate

    async def rows(self) -> dict[str, Reading]:
        rate = self.size.rate
        half = await self._arrivals(self.size.half[0] * rate, self.size.half[1])
        begun = time.monotonic()
        async with self._looking():
            above = await self._arrivals(self.size.above[0] * rate, self.size.above[1])
        started = saturated(
            [at - begun for at in self.ready.values() if at > begun],
            until=self.size.above[1],
            at_once=self.size.at_once,
        )
        full = await self._arrivals(self.size.full[0] * started, self.size.full[1])
        # One that is ready before its place is read was served meanwhile.
        seen = [one for one in self.places if self.ready.get(one.sandbox, 0.0) > one.at]
        ready = sorted(self.ready.values())
        places = [one.place / self._served(one, ready) for one in seen]
        waits = [one.wait / self._left(one) for one in seen if one.wait is not None]
        refusals = [estimate / actual for at, estimate in self.refused if (actual := self._wait(at))]
        return {
            "start_ready_p99": Reading(
                value=percentile(full, 0.99),
                parts={
                    "nodes start": f"{started:.1f}/s, {rate:g}/s if a start took {self.size.start:g} s",
                    "creates": f"{len(full)}, {self.size.full[0] * started:.1f}/s",
                    "p50": f"{percentile(full, 0.5):.1f} s",
                    "half, creates": f"{len(half)}, {self.size.half[0] * rate:g}/s",
                    "half, p50": f"{percentile(half, 0.5):.1f} s",
                    "half, p99": f"{percentile(half, 0.99):.1f} s",
                    "above, creates": f"{len(above)}, {self.size.above[0] * rate:g}/s",
                    "above, p50": f"{percentile(above, 0.5):.1f} s",
                },
                curves={"what nodes can start": full, "half of it": half, "above": above},
            ),
            "start_ready_places": _honest(places),
            "start_ready_waits": _honest(waits),
            "start_ready_refusals": _honest(refusals),
            "start_ready_starts": Reading(value=self.watch.most_starting / _CAP),
        }

    async def _arrivals(self, rate: float, seconds: float) -> list[float]:
        """Create so many sandboxes a second; return the sorted seconds until each was ready."""
        took, begun = list[float](), time.monotonic()

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
                    wait = one.get("estimatedWaitSeconds")
                    self.places.append(_Place(now, one["id"], one["queuePosition"], wait))
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

    def _served(self, place: _Place, ready: list[float]) -> int:
        """Return how many became ready from then on until this one."""
        return bisect_right(ready, self.ready[place.sandbox]) - bisect_right(ready, place.at)

    def _left(self, place: _Place) -> float:
        return self.ready[place.sandbox] - place.at

    def _wait(self, at: float) -> float | None:
        """Return how long the last one in the queue of this moment waited."""
        before = [one for one in self.places if one.at <= at and one.sandbox in self.ready]
        if not before:
            return None
        last = max(before, key=lambda one: (one.at, one.place))
        return self.ready[last.sandbox] - at


def saturated(ready: list[float], *, until: float, at_once: int) -> float:
    """Return the starts a second of nodes that always had `at_once` in progress, by when each was over, in seconds.

    The first ones begin together, so the time counts from the last of them, and until no more creates came. Raises
    ValueError if that are too few.
    """
    times = sorted(at for at in ready if at <= until)
    if len(times) < 2 * at_once:
        raise ValueError(f"{len(times)} starts are over in {until:g} s, a rate needs {2 * at_once}")
    first, *later = times[at_once - 1 :]
    return len(later) / (later[-1] - first)


def _honest(ratios: list[float]) -> Reading:
    """Return the share of what was told that was within 2 × of what followed, of what was told ÷ what followed."""
    if not ratios:
        return Reading(value=math.nan, parts={"told": "none"})
    return Reading(
        value=_within(ratios),
        parts={
            "told": str(len(ratios)),
            **{
                f"÷ what followed, p{share * 100:.0f}": f"{percentile(sorted(ratios), share):.2f}"
                for share in (0.1, 0.5, 0.9)
            },
        },
    )


def _within(ratios: list[float]) -> float:
    """Return the share of the ratios from 0.5 to 2."""
    return sum(0.5 <= one <= 2 for one in ratios) / len(ratios)
