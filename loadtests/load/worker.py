"""A generator process: reads phases from stdin, makes their calls, writes its events to its own file."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import msgspec
import uvloop
from sandlot import AsyncClient

from loadtests.load import rl_load
from loadtests.load.events import Journal
from loadtests.load.lag import LagWatch
from loadtests.load.messages import Assignment, Done, Ledger, Setup
from loadtests.load.profile import Closed, Open, Phase
from loadtests.load.schedule import Popularity, arrivals, share
from loadtests.load.task import Actor


async def work(actor: Actor, assignment: Assignment) -> Done:
    """Run a phase to the end of its last task."""
    phase, before = assignment.phase, actor.calls
    figures: dict[str, float] = {}
    actor.ledger = Ledger()
    await _until(assignment.start)
    async with LagWatch() as watch:
        if phase.closed is not None:
            await _closed(actor, phase, phase.closed, start=assignment.start)
        elif phase.open is not None:
            await _open(actor, phase, phase.open, start=assignment.start, watch=watch)
        elif phase.rest is not None:
            await asyncio.sleep(phase.rest.seconds)
        elif phase.in_one_process:
            figures = await rl_load.run(actor, phase)
    if phase.ledger and phase.sandbox != "own":
        await actor.read_ledgers(phase.ledger)
    actor.journal.flush()
    return Done(
        phase=phase.name,
        process=actor.setup.process,
        calls=actor.calls - before,
        cpu=watch.cpu,
        wall=watch.wall,
        lags=watch.lags,
        sends=watch.sends,
        ledger=actor.ledger if phase.ledger else None,
        figures=figures,
    )


async def _closed(actor: Actor, phase: Phase, load: Closed, *, start: float) -> None:
    process, processes = actor.setup.process, actor.setup.processes
    numbers: Iterator[int] = count(process, processes)
    if load.tasks is not None:
        numbers = islice(numbers, share(load.tasks, process=process, processes=processes))
    end = None if load.seconds is None else start + load.seconds

    async def caller() -> None:
        for number in numbers:
            if end is not None and time.monotonic() >= end:
                return
            await actor.task(phase, number)

    async with asyncio.TaskGroup() as group:
        for _ in range(share(load.callers, process=process, processes=processes)):
            group.create_task(caller())


async def _open(actor: Actor, phase: Phase, load: Open, *, start: float, watch: LagWatch) -> None:
    process, processes = actor.setup.process, actor.setup.processes
    moments = arrivals(rate=load.rate, seconds=load.seconds, spacing=load.spacing, seed=actor.setup.seed)
    places = asyncio.Semaphore(max(1, share(load.in_flight, process=process, processes=processes)))

    async def one(number: int, intended: float) -> None:
        try:
            await actor.task(phase, number, intended=intended)
        finally:
            places.release()

    async with asyncio.TaskGroup() as group:
        for number, moment in enumerate(moments):
            if number % processes != process:
                continue
            intended = start + moment
            await _until(intended)
            if not places.locked():  # otherwise missing responses cause the delay, not this process
                watch.sends.append(round(max(0.0, time.monotonic() - intended), 5))
            await places.acquire()
            group.create_task(one(number, intended))


async def _until(moment: float) -> None:
    while True:
        # Yield even when late: otherwise the loop would delay the responses of earlier tasks.
        await asyncio.sleep(max(0.0, moment - time.monotonic()))
        if time.monotonic() >= moment:  # uvloop's timers may be a millisecond early
            return


async def main() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    setup = msgspec.json.decode(await reader.readline(), type=Setup)
    journal = Journal(Path(setup.journal))
    # A garbage collection over all imports takes tens of milliseconds, which would count as server latency.
    gc.collect()
    gc.freeze()
    try:
        async with AsyncClient(url=setup.url, api_key=setup.api_key) as client:
            actor = Actor(setup, client, journal, Popularity(len(setup.images), zipf=setup.zipf))
            _answer({"ready": setup.process})
            line = await reader.readline()
            while line:
                working = asyncio.create_task(work(actor, msgspec.json.decode(line, type=Assignment)))
                following = asyncio.create_task(reader.readline())
                # No message arrives during a phase, so EOF on stdin means that the command has gone.
                await asyncio.wait((working, following), return_when=asyncio.FIRST_COMPLETED)
                if not working.done():
                    working.cancel()
                    return
                _answer(working.result())
                line = await following
    finally:
        journal.close()


def _answer(told: object) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")
    sys.stdout.flush()


if __name__ == "__main__":
    uvloop.run(main())
