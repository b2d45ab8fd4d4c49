"""Runs the phases with rollouts: starts the model and the process that has verifiers, kills sandboxes, makes the events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from sandlot import AsyncPools, AsyncSandbox

from loadtests.code_env import losses
from loadtests.code_env.figures import of_rollouts
from loadtests.code_env.messages import Ask, Record, Report, Setup
from loadtests.code_env.model import Model, serving
from loadtests.load.events import TASK, Event, Outcome
from loadtests.load.generators import ROOT, Generators
from loadtests.load.messages import Done
from loadtests.load.places import Place, PlaceFailed
from loadtests.load.profile import Phase, Rollouts
from tests.prime.environments import EnvironmentFailed, client_env, environment

QUIET = {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}


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
        labels = (self._label, phase.name)
        async with losses.every(
            load.kill_every,
            within=load.model / 2,  # the fastest completion takes as long
            labels=labels,
            place=self._place,
            seed=self._seed,
        ) as lost:
            (line,) = await self._process.ask(msgspec.json.encode(ask) + b"\n")
        boxes = await AsyncSandbox.list(labels=labels, active=None, client=self._place.client)
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


@asynccontextmanager
async def rollout_process(
    phases: Sequence[Phase], *, place: Place, pool: str | None, label: str, zero: float, seed: int, log: Path
) -> AsyncIterator[RolloutProcess | None]:
    """Start it, if a phase has rollouts. Raises PlaceFailed where verifiers cannot be installed."""
    loads = [phase.rollouts for phase in phases if phase.rollouts is not None]
    if not loads:
        yield None
        return
    python = await asyncio.to_thread(verifiers_python)
    endpoint = await place.client.endpoint()
    with TemporaryDirectory(prefix="sandlot-load-") as home:
        env = client_env(Path(home), url=endpoint.url, api_key=endpoint.api_key)
        async with serving(Model(mean=loads[0].model, tests=loads[0].tests)) as model:
            setup = await _setup(loads, place=place, pool=pool, label=label, model=model)
            command = [str(python), "-B", "-m", "loadtests.code_env.program"]
            env |= {"PYTHONPATH": str(ROOT)} | QUIET
            async with Generators([setup], log=log, command=command, env=env) as process:
                yield RolloutProcess(process, model, place=place, label=label, zero=zero, seed=seed)


def verifiers_python() -> Path:
    """Return the Python of the environment of the tests' clients. Raises PlaceFailed."""
    try:
        return environment("verifiers", "0.1.14", also=("prime-sandboxes==0.2.36",))
    except EnvironmentFailed as error:
        raise PlaceFailed(f"verifiers cannot be installed: {error}; is a package index reachable?") from error


def no_verifiers() -> str | None:
    """Return why there is no environment with verifiers on this machine, or None."""
    try:
        verifiers_python()
    except PlaceFailed as error:
        return str(error)
    return None


async def _setup(
    loads: Sequence[Rollouts], *, place: Place, pool: str | None, label: str, model: Model
) -> Setup:
    """Ask for sandboxes of the pool's size: Prime's clients cannot name a pool."""
    pools = await AsyncPools(client=place.client).list()
    found = [each for each in pools if each.name == pool]
    if not found or place.image is None:
        raise PlaceFailed("rollouts need a `pool` of sandboxes, whose sizes they ask for")
    return Setup(
        model=model.url,
        image=place.image,
        cpu=found[0].cpu,
        memory_gb=found[0].memory / (1 << 30),
        disk_gb=found[0].disk / (1 << 30),
        label=label,
        threads=max(2 * load.callers + load.tests for load in loads),
    )


def _events(record: Record, *, phase: str, zero: float) -> Iterator[Event]:
    """Return the rollout and its parts; of a masked one, the first part that did not end was lost."""
    masked: Outcome = "infrastructure" if record.masked else "ok"
    parts: list[tuple[str, float | None, float | None]] = [
        ("create", record.began, record.created),
        ("inference", record.began, record.inferred),
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
