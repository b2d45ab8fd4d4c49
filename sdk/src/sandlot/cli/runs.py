"""runs: shows the leases of training runs and what became of them, and ends them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from sandlot.cli import output
from sandlot.runs import RunInfo, RunReport

runs = typer.Typer(help="Training runs, with whose leases their sandboxes end.", invoke_without_command=True)

_SLOWEST = 5  # commands that are shown
_COMMAND = 80  # characters of each
_REPORT_SECONDS = 5.0  # that `show` waits for what it can do without

RunId = Annotated[str, typer.Argument(help="The run's id.")]


def register(app: typer.Typer) -> None:
    app.add_typer(runs, name="runs")


_COLUMNS: dict[str, Callable[[RunInfo], object]] = {
    "RUN": lambda run: run.id,
    "STATE": lambda run: run.state,
    "RUNNING": lambda run: run.sandboxes.get("RUNNING", 0),
    "PENDING": lambda run: run.sandboxes.get("PENDING", 0),
    "ENDED": lambda run: sum(run.verdicts.values()),
    "PRIORITY": lambda run: run.priority,
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
    """Show a run with its sandboxes by status, the verdicts of those that have ended, its usage, cost and slowest commands."""
    from sandlot import Runs
    from sandlot.errors import SandlotError

    with output.connection.client() as client:
        runs = Runs(client=client)
        run = runs.get(run_id)
        missing = ""
        report: RunReport | None = None
        if not json:
            try:
                report = runs.report(run_id, timeout=_REPORT_SECONDS)
            except SandlotError as error:  # also NotFound, of a server of before
                missing = str(error)
    output.show(run, json=json, text=_text(run, report, missing=missing))


@runs.command("report")
def report_run(
    run_id: RunId,
    html: Annotated[Path | None, typer.Option(help="Write an HTML page to this file.")] = None,
    json: output.Json = False,
) -> None:
    """Show what became of a run, what it used, and its slowest commands; with --html write a page."""
    from sandlot import Runs

    with output.connection.client() as client:
        report = Runs(client=client).report(run_id)
    if html is not None:
        from sandlot.reports.run import page

        page(report).write(html)
        output.note(f"report: {html}")
    if json or html is None:
        output.show(report, json=json, text=_text(report.run, report))


@runs.command("end")
def end_run(run_id: RunId, json: output.Json = False) -> None:
    """End a run, whoever holds it, and delete its sandboxes."""
    from sandlot import Runs

    with output.connection.client() as client:
        run = Runs(client=client).end(run_id)
    output.show(run, json=json, text=f"{run.id}: {run.state}")


def _text(run: RunInfo, report: RunReport | None, *, missing: str = "") -> str:
    """Return the lines of a run and its report. `missing`: why there is no report."""
    from sandlot.reports.run import counts, facts, slowest, without_report

    lines = {
        "run": run.id,
        "name": run.name or "-",
        "state": run.state,
        "holder": f"{run.holder} (epoch {run.epoch})",
        "priority": str(run.priority),
        "weight": str(run.weight),
        "grace": f"{run.grace:g} s",
        "began": run.began_at,
        "renewed": run.renewed_at,
        "finished": run.finished_at or "-",
        "metadata": ", ".join(f"{key}={value}" for key, value in run.metadata.items()) or "-",
        "sandboxes": counts(run.sandboxes),
        "verdicts": counts(run.verdicts if report is None else report.ends),
        **(facts(report) if report is not None else without_report(run, why=missing)),
    }
    shown = [f"{name:<10} {output.printable(text)}" for name, text in lines.items()]
    if report is not None and report.commands.slowest:
        shown.append("slowest commands:")
        for took, verdict, sandbox, command in slowest(report, most=_SLOWEST):
            line = f"  {took:>9}  {verdict:<8}  {sandbox}  {command[:_COMMAND]}"
            shown.append(output.printable(line))
    return "\n".join(shown)
