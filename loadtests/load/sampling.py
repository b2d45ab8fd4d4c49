"""Samples the parts during a run: resource use, sandboxes by state, objects in the API server."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from sandlot import AsyncClient
from sandlot._protocol.messages import Request, TransportError
from sandlot.errors import SandlotError

_STATES = re.compile(r'^sandlot_sandboxes\{status="(\w+)"\} (\S+)$', re.MULTILINE)
_GAUGES = {
    "warm": re.compile(r"^sandlot_ready_instances (\S+)$", re.MULTILINE),
    "waiting": re.compile(r"^sandlot_creates_waiting (\S+)$", re.MULTILINE),
    "starting": re.compile(r"^sandlot_starts_in_flight (\S+)$", re.MULTILINE),
}


class Usage(msgspec.Struct, kw_only=True):
    """Resource use of a part: CPU seconds so far (only differences are meaningful), bytes, processes, open files."""

    cpu: float
    memory: int
    processes: int = 1
    descriptors: int = 0


class Sample(msgspec.Struct, kw_only=True):
    """One sample, `at` seconds since the run began.

    `nodes` counts the pods that have become ready on each node, `objects` what the API server keeps, by resource.
    """

    at: float
    parts: dict[str, Usage]
    sandboxes: dict[str, int]
    nodes: dict[str, int] = {}
    objects: dict[str, int] = {}


Probe = Callable[[], Awaitable[dict[str, Usage]]]
Counts = Callable[[], Awaitable[dict[str, int]]]


class Sampler:
    """Samples every `every` seconds inside `async with`, and at once with `take`; writes each sample to a file."""

    def __init__(
        self,
        *,
        client: AsyncClient,
        probe: Probe,
        nodes: Counts,
        objects: Counts,
        path: Path,
        zero: float,
        every: float = 1.0,
    ) -> None:
        self.samples: list[Sample] = []
        self._client = client
        self._probe = probe
        self._nodes = nodes
        self._objects = objects
        self._file = path.open("wb")
        self._zero = zero
        self._every = every
        self._task: asyncio.Task[None] | None = None
        self._one = asyncio.Lock()

    async def __aenter__(self) -> Sampler:
        self._task = asyncio.create_task(self._again_and_again())
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._file.close()

    async def take(self, *, at: float | None = None) -> Sample:
        """Take a sample, now or at a time of the monotonic clock."""
        if at is not None:
            await asyncio.sleep(at - time.monotonic())
        async with self._one:
            parts, sandboxes, nodes, objects = await asyncio.gather(
                self._probe(), self._sandboxes(), self._nodes(), self._objects()
            )
            sample = Sample(
                at=round(time.monotonic() - self._zero, 3),
                parts=parts,
                sandboxes=sandboxes,
                nodes=nodes,
                objects=objects,
            )
            self.samples.append(sample)
            self._file.write(msgspec.json.encode(sample) + b"\n")
            self._file.flush()
            return sample

    async def _again_and_again(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            await self.take()

    async def _sandboxes(self) -> dict[str, int]:
        """Return the gateway's sandboxes by state, or nothing if it does not respond in time: the run continues."""
        end = await self._client.endpoint()
        headers = {"Authorization": f"Bearer {end.api_key}"}
        request = Request("GET", end.origin, f"{end.prefix}/metrics", headers=headers, timeout=5.0)
        with contextlib.suppress(TransportError, SandlotError):
            answer = await self._client.transport.request(request)
            if answer.status == 200:
                return states(answer.body.decode())
        return {}


def states(text: str) -> dict[str, int]:
    """Count the sandboxes by state in a gateway's metrics, leaving out empty states."""
    found = {state.lower(): int(float(number)) for state, number in _STATES.findall(text)}
    for name, pattern in _GAUGES.items():
        if match := pattern.search(text):
            found[name] = int(float(match[1]))
    return {name: number for name, number in found.items() if number}
