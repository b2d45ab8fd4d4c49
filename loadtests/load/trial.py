"""Runs one profile: pool, baselines, phases, samples; then merges and summarises its events."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import secrets
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sandlot import AsyncSandbox

from loadtests.code_env.rollouts import RolloutProcess, rollout_process
from loadtests.load import events as journal
from loadtests.load import summary
from loadtests.load.baselines import Baselines, Called, Callers, Calls, MakeSandbox, in_a_sandbox, on_the_spot
from loadtests.load.beside import Beside
from loadtests.load.breaking import carry_out
from loadtests.load.events import PODS_EXEC, Event
from loadtests.load.generators import Generators
from loadtests.load.messages import Setup
from loadtests.load.peers import peers as take_peers
from loadtests.load.places import Place
from loadtests.load.profile import Phase
from loadtests.load.profile_files import Loaded
from loadtests.load.sampling import Sample, Sampler
from loadtests.load.share_of import paced
from loadtests.load.strangers import during
from loadtests.load.summary import Span
from loadtests.load.warming import Warmed, warm_up

AHEAD = 0.1  # seconds from the assignment of a phase to its start
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Found:
    """Results of a run; `summary` is the content of `summary.json`, without the bounds."""

    events: list[Event]
    samples: list[Sample]
    spans: list[Span]
    baselines: Baselines
    summary: dict[str, Any]


async def trial(
    loaded: Loaded, *, place: Place, folder: Path, seed: int, every: float, peers: bool, tell: Tell
) -> Found:
    """Run the profile; write `events.jsonl` and `samples.jsonl` into the folder. Raises what stops the run."""
    profile = loaded.profile
    parts = _emptied(folder)
    label = f"loadtest-{secrets.token_hex(4)}"
    zero, began = time.monotonic(), datetime.now(UTC)
    taken: Baselines = {}
    spans: list[Span] = []
    endpoint = await place.client.endpoint()
    async with AsyncExitStack() as stack:
        images = await stack.enter_async_context(place.images(profile.images))
        cold_pool = None
        if any(phase.cold for phase in profile.phases):
            cold_pool = await stack.enter_async_context(place.cold_pool(profile.cpu))
        pool = await stack.enter_async_context(
            place.pool(size=profile.pool, cpu=profile.cpu, slots=profile.images is not None)
        )
        await stack.enter_async_context(place.bare(profile.bare))
        stack.push_async_callback(_end_all, place, label)

        async def make() -> AsyncSandbox:
            return await AsyncSandbox.create(
                place.image, cpu=profile.cpu, pool=pool, labels=(label,), client=place.client
            )

        async def baselines() -> None:
            await on_the_spot(taken, profile.baseline)
            await in_a_sandbox(taken, profile.baseline, make)
            await place.baselines(taken, profile.baseline, make=make)
            if peers:
                await take_peers(taken, profile.baseline, make, measure=place.peer)

        tell("baselines")
        await baselines()
        setups = [
            Setup(
                url=endpoint.url,
                api_key=endpoint.api_key,
                image=place.image,
                images=images,
                zipf=profile.images.zipf if profile.images else 0.0,
                pool=pool,
                cold_pool=cold_pool,
                cpu=profile.cpu,
                label=label,
                process=process,
                processes=profile.processes,
                zero=zero,
                journal=str(parts / f"{process}.jsonl"),
                seed=seed,
            )
            for process in range(profile.processes)
            if any(phase.rollouts is None for phase in profile.phases)
        ]
        rollouts = await stack.enter_async_context(
            rollout_process(
                profile.phases,
                place=place,
                pool=pool,
                label=label,
                zero=zero,
                seed=seed,
                log=folder / "generators.log",
            )
        )
        generators = await stack.enter_async_context(Generators(setups, log=folder / "generators.log"))
        sampler = await stack.enter_async_context(
            Sampler(
                client=place.client,
                probe=place.probe(lambda: [*generators.pids, *(rollouts.pids if rollouts else [])]),
                nodes=place.nodes(),
                objects=place.objects(),
                path=folder / "samples.jsonl",
                zero=zero,
                every=every,
            )
        )
        spawns = journal.Journal(parts / "beside.jsonl")
        stack.callback(spawns.close)
        beside = Beside(command=profile.baseline.command, journal=spawns, zero=zero)
        for planned in profile.phases:
            phase = paced(planned, phases=profile.phases, spans=spans)
            tell(f"phase {phase.name}")
            before = await place.supplied() if images else {}
            quiet = phase.rest is not None or phase.warm_up is not None
            async with (
                _callers(phase, place=place, command=profile.baseline.command, make=make) as callers,
                contextlib.nullcontext() if quiet else beside.during(phase.name),
                during(phase.strangers, place=place, make=make) as attack,
            ):
                if phase.warm_up is not None and profile.images is not None:
                    warming = warm_up(
                        images,
                        zipf=profile.images.zipf,
                        timeout=phase.warm_up.seconds,
                        client=place.client,
                    )
                    span = await _warming(phase, warming, sampler=sampler, zero=zero)
                elif phase.rollouts is not None and rollouts is not None:
                    span = await _rollouts(phase, rollouts, sampler=sampler, zero=zero)
                else:
                    span, called = await _phase(
                        phase, generators=generators, sampler=sampler, place=place, callers=callers, zero=zero
                    )
                    if called:
                        others = events_of(called.made, phase=phase.name, zero=zero)
                        journal.write(others, parts / f"pods-exec-{phase.name}.jsonl")
            after = await place.supplied() if images else {}
            supplied = {name: after[name] - before.get(name, 0) for name in after}
            spans.append(replace(span, attack=attack, supplied=supplied))
        if rollouts:
            journal.write(rollouts.events, parts / "rollouts.jsonl")
        await _end_all(place, label)
        tell("baselines again")
        await baselines()
    found = _merge(parts, folder=folder)
    shutil.rmtree(parts)
    told: dict[str, Any] = {
        "profile": loaded.name,
        "what": profile.what,
        "short": loaded.short,
        "parameters": loaded.parameters,
        "began": began.isoformat(timespec="seconds"),
        "seed": seed,
        "place": {"kind": place.kind, "name": place.name},
        "machine": {
            "cores": len(os.sched_getaffinity(0)),
            "kernel": f"{platform.system()} {platform.release()}",
            "python": platform.python_version(),
        },
        "baselines": summary.of_baselines(taken),
        "phases": {
            span.name: summary.of_phase(
                span,
                events=[event for event in found if event.phase == span.name],
                samples=sampler.samples,
            )
            for span in spans
        },
    }
    told["lagged"] = summary.lagged(told["phases"], told["baselines"])
    return Found(events=found, samples=sampler.samples, spans=spans, baselines=taken, summary=told)


def _emptied(folder: Path) -> Path:
    """Create an empty folder for the generator processes' files, one each."""
    parts = folder / "parts"
    shutil.rmtree(parts, ignore_errors=True)
    parts.mkdir(parents=True)
    (folder / "generators.log").unlink(missing_ok=True)
    return parts


async def _phase(
    phase: Phase,
    *,
    generators: Generators,
    sampler: Sampler,
    place: Place,
    callers: Callers | None,
    zero: float,
) -> tuple[Span, Calls | None]:
    """Run a phase, with what `callers` call meanwhile."""
    start = time.monotonic() + AHEAD
    async with asyncio.TaskGroup() as group:
        done = group.create_task(generators.run(phase, start=start))
        broken = group.create_task(carry_out(phase.faults, place=place, start=start, zero=zero))
        others = group.create_task(_called(callers, start=start, seconds=phase.seconds))
        group.create_task(sampler.take(at=start))
    last = await sampler.take()
    called = others.result()
    span = Span(
        name=phase.name,
        begun=start - zero,
        ended=last.at,
        done=done.result(),
        window=None if phase.closed is None and phase.pods_exec is None else phase.seconds,
        rate=None if phase.open is None else phase.open.rate,
        others=called.by if called else (),
        broken=broken.result(),
    )
    return span, called


def _callers(
    phase: Phase, *, place: Place, command: Sequence[str], make: MakeSandbox
) -> AbstractAsyncContextManager[Callers | None]:
    if phase.pods_exec is None:
        return contextlib.nullcontext()
    return place.pods_exec(phase.pods_exec, command=command, make=make)


async def _called(callers: Callers | None, *, start: float, seconds: float | None) -> Calls | None:
    return None if callers is None or seconds is None else await callers(start, seconds)


def events_of(called: Sequence[Called], *, phase: str, zero: float) -> list[Event]:
    """Return the calls of `pods/exec` as events of the phase; a failed one is that of the infrastructure."""
    return [
        Event(
            phase=phase,
            process=-1,
            number=one.caller,
            kind=PODS_EXEC,
            intended=round(one.began - zero, 6),
            began=round(one.began - zero, 6),
            ended=round(one.ended - zero, 6),
            outcome="infrastructure" if one.error else "ok",
            verdict=one.error or "exited",
        )
        for one in called
    ]


async def _rollouts(phase: Phase, rollouts: RolloutProcess, *, sampler: Sampler, zero: float) -> Span:
    start = time.monotonic() + AHEAD
    async with asyncio.TaskGroup() as group:
        running = group.create_task(rollouts.run(phase, start=start))
        group.create_task(sampler.take(at=start))
    done, told = running.result()
    last = await sampler.take()
    return Span(name=phase.name, begun=start - zero, ended=last.at, done=[done], rollouts=told)


async def _warming(phase: Phase, warming: Awaitable[Warmed], *, sampler: Sampler, zero: float) -> Span:
    first = await sampler.take()
    warmed = await warming
    last = await sampler.take()
    return Span(name=phase.name, begun=first.at, ended=last.at, done=(), warmed=warmed)


async def _end_all(place: Place, label: str) -> None:
    await AsyncSandbox.delete_many(labels=(label,), client=place.client)


def _merge(parts: Path, *, folder: Path) -> list[Event]:
    """Merge the events of all processes into one file, in the order of their ends."""
    files: Sequence[Path] = sorted(parts.glob("*.jsonl"))
    found = list(journal.merged(journal.read(path) for path in files))
    whole = journal.Journal(folder / "events.jsonl")
    for event in found:
        whole.add(event)
    whole.close()
    return found
