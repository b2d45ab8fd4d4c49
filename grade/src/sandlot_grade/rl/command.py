"""Defines the command `sandlot demo-rl`."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from sandlot.errors import ConfigError, SandlotError

from sandlot_grade.command import DEPLOYED_AT_ONCE, fail


def register(app: typer.Typer) -> None:
    """Add `demo-rl` to a command line."""
    app.command("demo-rl")(demo_rl)


def demo_rl(
    steps: Annotated[int, typer.Option(min=1, help="Steps of training at most.")] = 30,
    group: Annotated[int, typer.Option(min=2, max=256, help="Answers for each of 8 tasks in a step.")] = 16,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds after which no step begins.")] = 170.0,
    seed: Annotated[int, typer.Option(help="Random seed of the policy.")] = 3,
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=256,
            help="Number of concurrent sandboxes; default 4 a core, or 16 on a deployment.",
        ),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(help="Run on the deployment at SANDLOT_URL, in sandboxes of this image (with python3)."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="File of the report; default reports/demo-rl-TIME.html.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")] = False,
) -> None:
    """Train a small policy from scratch to write programs, each run in a sandbox, in a private local stack or with --image."""
    console = Console(stderr=as_json)
    report = html or Path("reports") / f"demo-rl-{datetime.now(UTC).strftime('%Y%m%d-%H%M%S')}.html"
    try:
        if importlib.util.find_spec("numpy") is None:
            raise ConfigError('demo-rl needs numpy: pip install "sandlot-grade[rl]"')
        from sandlot_grade.places import Deployed, OnThisMachine
        from sandlot_grade.rl.demo import Order, demo
        from sandlot_grade.schedule import usable_cores

        place = OnThisMachine() if image is None else Deployed(image=image)
        made, faults = asyncio.run(
            demo(
                console=console,
                place=place,
                concurrency=concurrency or (4 * usable_cores() if image is None else DEPLOYED_AT_ONCE),
                order=Order(steps=steps, group=group, seconds=seconds, seed=seed),
                report=report,
            )
        )
    except (SandlotError, OSError) as error:
        fail(error, as_json=as_json)
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "steps": len(made.steps),
                    "rewards": [step.reward for step in made.steps],
                    "first": made.first,
                    "last": made.last,
                    "rollouts": made.rollouts,
                    "masked": made.masked,
                    "rollouts_per_second": made.rollouts / made.elapsed,
                    "waiting": made.waiting,
                    "seconds": made.elapsed,
                    "faults": faults,
                    "report": str(report),
                }
            )
        )
    else:
        for one in made.learned:
            console.print(f"{one.task}: {one.answer} ({one.reward:.2f})", highlight=False, markup=False)
        for line in faults:
            console.print(f"FAULT {line}", style="red", highlight=False, soft_wrap=True, markup=False)
        console.print(
            f"reward {made.first:.2f} → {made.last:.2f}, {made.rollouts} rollouts, "
            f"{made.rollouts / made.elapsed:.1f} a second, {made.waiting:.0%} of the time waiting for sandboxes",
            highlight=False,
            soft_wrap=True,
        )
        console.print(f"report: {report}", highlight=False, soft_wrap=True, markup=False)
    if faults:
        raise typer.Exit(1)
