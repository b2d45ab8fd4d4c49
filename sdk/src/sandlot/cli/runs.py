"""runs: shows the leases of training runs, and ends them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from sandlot.cli import output
from sandlot.runs import RunInfo

runs = typer.Typer(help="Training runs, with whose leases their sandboxes end.", invoke_without_command=True)

RunId = Annotated[str, typer.Argument(help="The run's id.")]


def register(app: typer.Typer) -> None:
    app.add_typer(runs, name="runs")


_COLUMNS: dict[str, Callable[[RunInfo], object]] = {
    "RUN": lambda run: run.id,
    "STATE": lambda run: run.state,
    "RUNNING": lambda run: run.sandboxes.get("RUNNING", 0),
    "PENDING": lambda run: run.sandboxes.get("PENDING", 0),
    "ENDED": lambda run: sum(run.verdicts.values()),
    "WEIGHT": lambda run: run.weight,
    "BEGAN": lambda run: run.began_at,
    "RENEWED": lambda run: run.renewed_at,
    "HOLDER": lambda run: output.printable(run.holder),
    "NAME": lambda run: output.printable(run.name or ""),
}


@runs.callback()
def list_runs(context: typer.Context, json: output.Json = False) -> None:
    """List the runs, the newest first; those that are over, for an hour."""
    if context.invoked_subcommand is not None:
        return
    from sandlot import Runs

    with output.connection.client() as client:
        found = Runs(client=client).list()
    output.show_table(found, json=json, columns=_COLUMNS, empty="no runs")


@runs.command("show")
def show_run(run_id: RunId, json: output.Json = False) -> None:
    """Show a run with its sandboxes by status, and by verdict those that have ended."""
    from sandlot import Runs

    with output.connection.client() as client:
        run = Runs(client=client).get(run_id)
    output.show(run, json=json, text=_text(run))


@runs.command("end")
def end_run(run_id: RunId, json: output.Json = False) -> None:
    """End a run, whoever holds it, and delete its sandboxes."""
    from sandlot import Runs

    with output.connection.client() as client:
        run = Runs(client=client).end(run_id)
    output.show(run, json=json, text=f"{run.id}: {run.state}")


def _text(run: RunInfo) -> str:
    from sandlot.errors import INFRASTRUCTURE

    masked = sum(count for verdict, count in run.verdicts.items() if verdict in INFRASTRUCTURE)
    lines = {
        "run": run.id,
        "name": run.name or "-",
        "state": run.state,
        "holder": f"{run.holder} (epoch {run.epoch})",
        "weight": str(run.weight),
        "grace": f"{run.grace:g} s",
        "began": run.began_at,
        "renewed": run.renewed_at,
        "finished": run.finished_at or "-",
        "metadata": ", ".join(f"{key}={value}" for key, value in run.metadata.items()) or "-",
        "sandboxes": _counts(run.sandboxes),
        "verdicts": _counts(run.verdicts),
        "to mask": f"{masked} lost by the infrastructure",
    }
    return "\n".join(f"{name:<10} {output.printable(text)}" for name, text in lines.items())


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in Counter(counts).most_common()) or "-"
