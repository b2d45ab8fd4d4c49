"""Sandboxes that hold connections to the gateways without a credential, and the gateways' memory for them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
from sandlot import AsyncSandbox, Stdout

from loadtests.load.baselines import MakeSandbox
from loadtests.load.places import Listener, Place, PlaceFailed
from loadtests.load.profile import Strangers
from loadtests.load.schedule import share

PROGRAM = Path(__file__).with_name("stranger_program.py").read_text()
BEGIN_SECONDS = 180.0  # until all wanted connections were made
LOOK = 2.0  # seconds between two samples of a gateway's memory


class Counts(msgspec.Struct):
    """The counts that the code in one sandbox prints."""

    open: int = 0
    opened: int = 0
    refused: int = 0


class Attack(msgspec.Struct, kw_only=True):
    """`connections` are wanted at once, `held` were open at the end, `opened` were made in all, and `refused` were not.

    `before` and `most` are bytes of resident memory of the gateway that grew most: before the first connection, and
    while the phase went on.
    """

    connections: int
    held: int = 0
    opened: int = 0
    refused: int = 0
    before: int = 0
    most: int = 0

    @property
    def grown(self) -> int:
        return self.most - self.before


class _Reports:
    """The last counts of each sandbox's code; `all_made` is set when all wanted connections were made."""

    def __init__(self, *, sandboxes: int, wanted: int) -> None:
        self.counts = [Counts() for _ in range(sandboxes)]
        self.all_made = asyncio.Event()
        self._wanted = wanted

    def tell(self, number: int, counts: Counts) -> None:
        self.counts[number] = counts
        if self.opened >= self._wanted:
            self.all_made.set()

    @property
    def opened(self) -> int:
        return sum(counts.opened for counts in self.counts)


@asynccontextmanager
async def during(plan: Strangers | None, *, place: Place, make: MakeSandbox) -> AsyncIterator[Attack | None]:
    """Hold all connections open until the block ends; do nothing without a plan. Raises PlaceFailed."""
    if plan is None:
        yield None
        return
    listener = await place.listener()
    wanted = plan.connections * len(listener.addresses)
    found = Attack(connections=wanted)
    reports = _Reports(sandboxes=plan.sandboxes, wanted=wanted)
    async with AsyncExitStack() as stack:
        boxes = await asyncio.gather(*(make() for _ in range(plan.sandboxes)))
        for box in boxes:
            stack.push_async_callback(box.delete)
        before = await place.gateway_memory()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_attack(plan, number, box, listener=listener, reports=reports))
                for number, box in enumerate(boxes)
            ]
            try:
                async with asyncio.timeout(BEGIN_SECONDS):
                    await reports.all_made.wait()
            except TimeoutError as error:
                made = f"{reports.opened} of {wanted} connections"
                raise PlaceFailed(f"strangers made {made} in {BEGIN_SECONDS:g} s") from error
            tasks.append(group.create_task(_watch(place, before=before, found=found)))
            yield found
            for task in tasks:
                task.cancel()
        await _look(place, before=before, found=found)
        found.held = sum(counts.open for counts in reports.counts)
        found.opened = reports.opened
        found.refused = sum(counts.refused for counts in reports.counts)


async def _attack(
    plan: Strangers, number: int, box: AsyncSandbox, *, listener: Listener, reports: _Reports
) -> None:
    """Run the code of one sandbox until cancelled. Raises PlaceFailed."""
    mine = share(plan.connections, process=number, processes=plan.sandboxes) * len(listener.addresses)
    words = {"connections": mine, "addresses": listener.addresses, "path": listener.path, "body": plan.body}
    said = b""
    async with await box.start(["python3", "-c", PROGRAM, json.dumps(words)]) as process:
        async for event in process:
            if isinstance(event, Stdout):
                *lines, said = (said + event.data).split(b"\n")
                if lines:
                    reports.tell(number, msgspec.json.decode(lines[-1], type=Counts))
        result = await process.wait()
    raise PlaceFailed(f"a stranger's code ended: {result.verdict}: {result.stderr[-300:]}")


async def _watch(place: Place, *, before: dict[str, int], found: Attack) -> None:
    while True:
        await _look(place, before=before, found=found)
        await asyncio.sleep(LOOK)


async def _look(place: Place, *, before: dict[str, int], found: Attack) -> None:
    """Note the gateway that has grown most. Raises PlaceFailed if one was restarted."""
    for name, memory in (await place.gateway_memory()).items():
        was = before.get(name)
        if was is None:
            raise PlaceFailed(f"the gateway is another than before the strangers came: {name}")
        if not found.before or memory - was > found.grown:
            found.before, found.most = was, memory
