"""Runs the phases with rollouts: starts the model and the framework's process, kills sandboxes, makes the events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from sandlot import AsyncPools, AsyncSandbox

from loadtests.code_env import losses
from loadtests.code_env.figures import of_rollouts
from loadtests.code_env.frameworks import PROGRAMS, of_phase, python_of, variables
from loadtests.code_env.messages import Ask, Record, Report, Setup
from loadtests.code_env.model import Model, serving
from loadtests.load.events import TASK, Event, Outcome
from loadtests.load.generators import Generators
from loadtests.load.messages import Done
from loadtests.load.places import Place, PlaceFailed
from loadtests.load.profile import Phase, Rollouts
from tests.prime.environments import client_env


class RolloutProcess:
    """The process that makes the rollouts of all phases of a run, and its model."""

    def __init__(
        self, process: Generators, model: Model, *, place: Place, label: str, zero: float, seed: int
    ) -> None:
        self._process = process
        self._model = model
        self._place = place
        self._label = label
        self._zero = zero
        self._seed = seed
        self.events: list[Event] = []

    @property
    def pids(self) -> list[int]:
        return self._process.pids

    async def run(self, phase: Phase, *, start: float) -> tuple[Done, dict[str, Any]]:
        """Run a phase from `start` on; return the generator's side of it and the summary of its rollouts."""
        load = phase.rollouts
        assert load is not None
        ask = Ask(
            name=phase.name,
            start=start,
            rollouts=load.tasks,
            callers=load.callers,
            tests=load.tests,
            on=load.on,
        )
        self._model.mean, self._model.tests = load.model, load.tests
        labels, run = of_phase(load.by, label=self._label, phase=phase.name)
        async with self._losses(load, labels=labels, run=run) as lost:
            (line,) = await self._process.ask(msgspec.json.encode(ask) + b"\n")
        boxes = await AsyncSandbox.list(labels=labels, run=run, active=None, client=self._place.client)
        report = msgspec.json.decode(line, type=Report)
        for record in report.records:
            self.events += _events(record, phase=phase.name, zero=self._zero)
        done = Done(
            phase=phase.name,
            process=0,
            calls=0,
            cpu=report.cpu,
            wall=report.wall,
            lags=report.lags,
            sends=[],
        )
        return done, of_rollouts(report.records, lost) | {"warm": sum(box.pool_hit for box in boxes)}

    def _losses(
        self, load: Rollouts, *, labels: tuple[str, ...], run: str | None
    ) -> AbstractAsyncContextManager[list[losses.Loss]]:
        if load.by == "verl":
            return losses.at_answers(
                load.kill_every, labels=labels, model=self._model, place=self._place, seed=self._seed
            )
        return losses.every(
            load.kill_every,
            within=load.model / 2,  # the fastest completion takes as long
            labels=labels,
            run=run,
            place=self._place,
            seed=self._seed,
        )


@asynccontextmanager
async def rollout_process(
    phases: Sequence[Phase], *, place: Place, pool: str | None, label: str, zero: float, seed: int, log: Path
) -> AsyncIterator[RolloutProcess | None]:
    """Start it, if a phase has rollouts. Raises PlaceFailed where the framework cannot be installed."""
    loads = [phase.rollouts for phase in phases if phase.rollouts is not None]
    if not loads:
        yield None
        return
    by = loads[0].by
    python = await asyncio.to_thread(python_of, by)
    endpoint = await place.client.endpoint()
    with TemporaryDirectory(prefix="sandlot-load-") as home:
        env = client_env(Path(home), url=endpoint.url, api_key=endpoint.api_key)
        async with serving(Model(mean=loads[0].model, tests=loads[0].tests)) as model:
            setup = await _setup(loads, place=place, pool=pool, label=label, model=model)
            env |= await asyncio.to_thread(variables, by, Path(home), setup)
            command = [str(python), "-B", "-m", PROGRAMS[by]]
            async with Generators([setup], log=log, command=command, env=env) as process:
                yield RolloutProcess(process, model, place=place, label=label, zero=zero, seed=seed)
    if by == "verl" and place.breakable:
        # Else the gateway keeps them for a while, beside the sandboxes of the next profile.
        await AsyncSandbox.delete_many(labels=of_phase(by, label=label, phase="")[0], client=place.client)


async def _setup(
    loads: Sequence[Rollouts], *, place: Place, pool: str | None, label: str, model: Model
) -> Setup:
    """Ask for sandboxes of the pool's size: not every client can name a pool."""
    endpoint = await place.client.endpoint()
    pools = await AsyncPools(client=place.client).list()
    found = [each for each in pools if each.name == pool]
    if not found or place.image is None:
        raise PlaceFailed("rollouts need a `pool` of sandboxes, whose sizes they ask for")
    return Setup(
        url=endpoint.url,
        api_key=endpoint.api_key,
        model=model.url,
        image=place.image,
        cpu=found[0].cpu,
        memory_gb=found[0].memory / (1 << 30),
        disk_gb=found[0].disk / (1 << 30),
        label=label,
        pool=found[0].name,
        threads=max(2 * load.callers + load.tests for load in loads),
    )


def _events(record: Record, *, phase: str, zero: float) -> Iterator[Event]:
    """Return the rollout and its parts; of a masked one, the first part that did not end was lost."""
    masked: Outcome = "infrastructure" if record.masked else "ok"
    # Where rollouts share their sandboxes, none creates one.
    creating = record.began if record.created is not None or record.masked else None
    parts: list[tuple[str, float | None, float | None]] = [
        ("create", creating, record.created),
        ("inference", record.began if record.asked is None else record.asked, record.inferred),
        ("tests", record.testing, record.tested),
        (TASK, record.began, record.ended),
    ]
    for kind, began, ended in parts:
        outcome = masked if kind == TASK or ended is None else "ok"
        if began is None:
            continue
        yield Event(
            phase=phase,
            process=0,
            number=record.number,
            kind=kind,
            intended=round(began - zero, 6),
            began=round(began - zero, 6),
            ended=round((ended or record.ended) - zero, 6),
            outcome=outcome,
            verdict="done" if outcome == "ok" else "masked",
            sandbox=record.sandbox,
            message=record.error[:200] if outcome != "ok" else "",
        )
