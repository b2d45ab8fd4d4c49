"""Runs the rows of a benchmark, prints their table, writes the reports, and checks the bounds."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import platform
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from loadtests.bounds import Bound, missed, read_bounds
from loadtests.file_limit import raise_limit
from loadtests.interrupts import end_in_order
from loadtests.reading import Again, Reading
from loadtests.report import write_report
from loadtests.requirements import Requirement

Readings = dict[str, Reading]


_SHOWN = {"held": "[green]held[/]", "missed": "[red]MISSED[/]", "at the floor": "[yellow]at the floor[/]"}


@dataclass(frozen=True, slots=True)
class Group:
    """A measurement of one or more rows."""

    rows: tuple[str, ...]
    measure: Callable[[], Awaitable[Readings]]
    requires: tuple[Requirement, ...] = ()


async def run(
    groups: Sequence[Group], *, bounds: dict[str, Bound], only: set[str], console: Console
) -> tuple[Readings, dict[str, Again]]:
    """Return all readings, and the rows that were measured twice because the first value missed its bound.

    Rows that count losses keep their first value.
    """
    readings: Readings = {}
    again: dict[str, Again] = {}
    for group in groups:
        if only.isdisjoint(group.rows):
            continue
        begun = time.monotonic()
        found = await _measure(group, console=console)
        values = {name: reading.value for name, reading in found.items()}
        over = missed(values, bounds={name: bounds[name] for name in group.rows})
        spoiled = [name for name in over if math.isnan(values[name]) or not bounds[name].counts_losses]
        if spoiled:
            # Retry once, because other load can spoil a single measurement; the table marks it.
            console.print(f"measuring {', '.join(spoiled)} once more", highlight=False)
            second = await _measure(group, console=console)
            better = [name for name in spoiled if _better(second, found, bound=bounds[name])]
            again |= {name: Again(values[name], taken=name in better) for name in spoiled}
            found |= {name: second[name] for name in better}
        readings |= found
        told = ", ".join(f"{name} {found[name].value:.3g} {bounds[name].unit}".strip() for name in group.rows)
        console.print(f"{told} in {time.monotonic() - begun:.0f} s", highlight=False)
    return readings, again


async def _measure(group: Group, *, console: Console) -> Readings:
    """Return the group's readings, without numbers if it fails, so that other rows are still measured."""
    try:
        return await group.measure()
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        console.print(f"{', '.join(group.rows)} failed: {why}", style="red", markup=False)
        # The error of a stack that did not start is its whole log; the last line has the reason.
        failed = {
            "failed": why if len(why) <= 200 else f"{type(error).__name__}: {why.splitlines()[-1][-160:]}"
        }
        return {name: Reading(value=math.nan, parts=failed) for name in group.rows}


def _better(second: Readings, first: Readings, *, bound: Bound) -> bool:
    return bound.used(second[bound.name].value) < bound.used(first[bound.name].value)


def table(readings: Readings, *, bounds: dict[str, Bound], again: dict[str, Again]) -> Table:
    """Return the rows as a table for the terminal."""
    made = Table(box=box.SIMPLE_HEAD)
    for name in ("row", "measured", "bound", "", "made of"):
        made.add_column(name, justify="right" if name in ("measured", "bound") else "left")
    values = {name: reading.value for name, reading in readings.items()}
    for name, reading in readings.items():
        bound = bounds[name]
        state = _SHOWN[bound.state(values)]
        if tried := again.get(name):
            state += " (2nd try)" if tried.taken else " (2nd try no better)"
        parts = "; ".join(f"{part} {value}" for part, value in reading.parts.items())
        made.add_row(
            bound.what, f"{reading.value:.3g} {bound.unit}", f"{bound.limit} {bound.unit}", state, parts
        )
    return made


def main(
    groups: Sequence[Group],
    *,
    spec: Path,
    name: str,
    description: str,
    around: AbstractAsyncContextManager[object] | None = None,
) -> int:
    """Run a benchmark's command line. `name` names its reports; `around` is active while rows are measured."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--only", nargs="*", default=[], metavar="ROW", help="measure only these rows")
    parser.add_argument(
        "--reports", type=Path, default=Path("reports"), help=f"folder of {name}.json and {name}.html"
    )
    arguments = parser.parse_args()
    measured = {row for group in groups for row in group.rows}
    bounds = {row: bound for row, bound in read_bounds(spec).items() if row in measured}
    unknown = set(arguments.only) - set(bounds)
    if unknown:
        parser.error(f"no such row: {sorted(unknown)[0]}; there are {', '.join(bounds)}")
    only = set(arguments.only) or set(bounds)
    console = Console(width=None if sys.stdout.isatty() else 160)
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    began = datetime.now(UTC)
    if load > cores / 2:
        console.print(
            f"the machine is busy (load {load:.1f} on {cores} cores): rows without a floor will be slower",
            style="yellow",
            highlight=False,
        )

    async def measure() -> tuple[Readings, dict[str, Again]]:
        async with around or contextlib.nullcontext():
            return await run(groups, bounds=bounds, only=only, console=console)

    end_in_order()
    raise_limit()
    readings, again = asyncio.run(measure())
    console.print(table(readings, bounds=bounds, again=again))
    values = {row: reading.value for row, reading in readings.items()}
    wanted = only | set(readings)
    fell = missed(values, bounds={row: bound for row, bound in bounds.items() if row in wanted})
    folder: Path = arguments.reports
    write(folder, name=name, readings=readings, bounds=bounds, again=again, load=load, began=began)
    console.print(f"written: {folder}/{name}.json, {folder}/{name}.html", highlight=False)
    for row in fell:
        console.print(f"bound missed: {row} is {values[row]:.4g}, must be {bounds[row].limit}", style="red")
    return 1 if fell else 0


def write(
    folder: Path,
    *,
    name: str,
    readings: Readings,
    bounds: dict[str, Bound],
    again: dict[str, Again],
    load: float,
    began: datetime,
) -> None:
    """Write the reports of a run, `NAME.json` with what each row was defined as, and `NAME.html`."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {row: reading.value for row, reading in readings.items()}
    machine = {
        "cores": str(len(os.sched_getaffinity(0))),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load at the beginning": f"{load:.2f}",
    }
    rows = {
        row: {
            "what": bounds[row].what,
            "value": _number(reading.value),
            "unit": bounds[row].unit,
            "at_most": bounds[row].at_most,
            "at_least": bounds[row].at_least,
            "held": bounds[row].held(reading.value),
            "at_floor": bounds[row].state(values) == "at the floor",
            "second_try": row in again,
            **(
                {"first": _number(again[row].first), "second_taken": again[row].taken} if row in again else {}
            ),
            "parts": reading.parts,
        }
        for row, reading in readings.items()
    }
    told = {
        "began": began.isoformat(timespec="seconds"),
        "seconds": round((datetime.now(UTC) - began).total_seconds(), 1),
        "machine": machine,
        "rows": rows,
    }
    (folder / f"{name}.json").write_text(json.dumps(told, indent=1) + "\n")
    write_report(folder / f"{name}.html", readings=readings, bounds=bounds, again=again, machine=machine)


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
