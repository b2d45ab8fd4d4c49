"""Defines the commands `sandlot grade` and `sandlot demo`."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from sandlot.errors import ConfigError, SandlotError
from sandlot.units import parse_size

from sandlot_grade.errors import InputError

DEPLOYED_AT_ONCE = 16


def register(app: typer.Typer) -> None:
    """Add `grade` and `demo` to a command line."""
    app.command("grade")(grade)
    app.command("demo")(demo)


def grade(
    file: Annotated[
        Path, typer.Argument(help="JSON Lines, .gz allowed; see docs/grading.md for the fields.")
    ],
    problems: Annotated[
        Path | None, typer.Option(help="File of problems for lines with a task_id; default HumanEval's.")
    ] = None,
    samples: Annotated[int | None, typer.Option(min=1, help="Grade only the first N lines.")] = None,
    output: Annotated[Path | None, typer.Option(help="File of results; default FILE_results.jsonl.")] = None,
    html: Annotated[Path | None, typer.Option(help="Also write an HTML report here.")] = None,
    image: Annotated[str, typer.Option(help="Image with python3.")] = "host",
    pool: Annotated[str | None, typer.Option(help="Warm pool to claim sandboxes from.")] = None,
    network: Annotated[str, typer.Option(help="none or full.")] = "none",
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds each program may run.")] = 10.0,
    memory: Annotated[str, typer.Option(help="Memory of each sandbox, such as 512MiB.")] = "512MiB",
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, max=2000, help="Number of concurrent rollouts; default what the machine allows."),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Ignore the results of an earlier run.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Grade candidate programs in sandboxes, one sandbox each."""
    from sandlot_grade.rollout import Limits
    from sandlot_grade.run import Order, grade_file
    from sandlot_grade.table import render

    console = Console(stderr=as_json)
    try:
        order = Order(
            file=file,
            problems=problems,
            first=samples,
            output=output,
            image=image,
            pool=pool,
            network=network,
            limits=Limits(timeout=timeout, memory=parse_size(memory, name="memory")),
            concurrency=concurrency,
            fresh=fresh,
        )
        done = asyncio.run(grade_file(order, console=console))
        if html is not None:
            done.page().write(html)
    except (SandlotError, ValueError, OSError) as error:
        fail(error, as_json=as_json)
    if as_json:
        typer.echo(json.dumps(done.document()))
    else:
        console.print(render(done.made, elapsed=done.elapsed))
        console.print(f"results: {done.output}", highlight=False, soft_wrap=True)
        if html is not None:
            console.print(f"report: {html}", highlight=False, soft_wrap=True)
    if done.made.lost:
        raise typer.Exit(3)


def demo(
    problems: Annotated[int | None, typer.Option(min=1, help="Only the first N problems.")] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=256,
            help="Number of concurrent rollouts; default what the machine allows, or 16 on a deployment.",
        ),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(help="Run on the deployment at SANDLOT_URL, in sandboxes of this image (with python3)."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="File of the report; default reports/demo-TIME.html.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")] = False,
) -> None:
    """Grade about 1,000 right, wrong and hostile HumanEval rollouts, in a private local stack or with --image."""
    from sandlot_grade.demo import LIMITS
    from sandlot_grade.demo import demo as run_demo
    from sandlot_grade.places import Deployed, OnThisMachine
    from sandlot_grade.schedule import Pace, fitting

    console = Console(stderr=as_json)
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    report = html or Path("reports") / f"demo-{stamp}.html"
    begun = time.monotonic()
    try:
        place = OnThisMachine() if image is None else Deployed(image=image)
        most = fitting(memory=LIMITS.memory) if image is None else DEPLOYED_AT_ONCE
        verdict = asyncio.run(
            run_demo(
                console=console,
                place=place,
                problems=problems,
                pace=Pace(most=concurrency or most, least=concurrency),
                report=report,
            )
        )
    except (SandlotError, OSError) as error:
        fail(error, as_json=as_json)
    whole = time.monotonic() - begun
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "rollouts": len(verdict.made.outcomes),
                    "passed": verdict.made.passed,
                    "results": {name: dict(kind.results) for name, kind in verdict.made.kinds.items()},
                    "timings": {name: verdict.made.percentiles(name) for name in ("create", "exec", "whole")},
                    "rollouts_per_second": verdict.made.rate(elapsed=verdict.elapsed),
                    "seconds": whole,
                    "faults": verdict.faults,
                    "report": str(verdict.report),
                }
            )
        )
    else:
        for line in verdict.faults:
            console.print(f"FAULT {line}", style="red", highlight=False, soft_wrap=True, markup=False)
        if not verdict.faults:
            console.print("every kind ended as expected; nothing is left behind", style="green")
        console.print(f"report: {verdict.report}", highlight=False, soft_wrap=True, markup=False)
    if verdict.faults:
        raise typer.Exit(1)


def fail(error: Exception, *, as_json: bool) -> NoReturn:
    """Print the error and exit: 2 for invalid input, 1 for other errors."""
    if as_json:
        typer.echo(json.dumps({"error": type(error).__name__, "message": str(error)}))
    else:
        typer.echo(f"sandlot: {error}", err=True)
    raise typer.Exit(2 if isinstance(error, (InputError, ConfigError, ValueError)) else 1) from error
