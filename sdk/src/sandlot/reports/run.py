"""The report of a training run, as lines for a terminal and as an HTML page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from decimal import Decimal

from sandlot.accounting import Cost
from sandlot.errors import INFRASTRUCTURE
from sandlot.reports.page import Figure, Page, Table
from sandlot.runs import RunInfo, RunReport


def counts(found: Mapping[str, int]) -> str:
    """Return counts as a phrase, the most frequent first."""
    return ", ".join(f"{count} {name}" for name, count in Counter(found).most_common()) or "-"


def seconds(value: float) -> str:
    if value < 0.9995:
        return f"{value * 1e3:.0f} ms"
    return f"{value:.2f} s" if value < 100 else f"{value:,.0f} s"


def money(cost: Cost | None) -> str:
    """Return a cost with its parts, such as "1.25 EUR (cores 1.00, memory 0.25), by the prices of now"."""
    if cost is None:
        return "-"
    parts = {"cores": cost.cores, "memory": cost.memory, "disk": cost.disk, "GPUs": cost.gpus}
    named = ", ".join(f"{name} {decimal(amount)}" for name, amount in parts.items() if amount)
    return (
        f"{decimal(cost.total)} {cost.currency}" + (f" ({named})" if named else "") + ", by the prices of now"
    )


def decimal(amount: Decimal) -> str:
    """Return an amount with all its digits, at least two of them after the point."""
    whole, _, digits = f"{amount:f}".partition(".")
    return f"{whole}.{digits.rstrip('0').ljust(2, '0')}"


def to_mask(masked: Mapping[str, int]) -> str:
    """Return how many sandboxes the infrastructure lost, by their verdicts."""
    return f"{sum(masked.values())} lost by the infrastructure" + (f" ({counts(masked)})" if masked else "")


def without_report(run: RunInfo, *, why: str) -> dict[str, str]:
    """Return what the run alone tells where its report cannot be had."""
    masked = {verdict: count for verdict, count in run.verdicts.items() if verdict in INFRASTRUCTURE}
    return {"to mask": to_mask(masked), "report": f"not available: {why}"}


def facts(report: RunReport) -> dict[str, str]:
    """Return what the report adds to the run itself, by name."""
    commands, used = report.commands, report.usage
    found = {
        "to mask": to_mask(report.masked),
        "starts": _starts(report),
        "usage": f"{used.core_seconds / 3600:.3f} core-hours, {used.memory_gib_seconds / 3600:.3f} GiB-hours of memory"
        + (f", {used.gpu_seconds / 3600:.3f} GPU-hours" if used.gpu_seconds else "")
        + f" of {used.sandboxes} sandboxes since {report.usage_since}",
        "cost": money(used.cost),
        "commands": f"{commands.count} in {seconds(commands.seconds)}, "
        f"queued for {seconds(commands.queued_seconds)}; counted since {commands.since}",
    }
    if commands.silent_gateways:
        found["missing"] = f"commands and ends of gateways that did not answer: {commands.silent_gateways}"
    return found


def slowest(report: RunReport, *, most: int | None = None) -> list[tuple[str, str, str, str]]:
    """Return the slowest commands as rows: time, verdict, sandbox, begin of the command."""
    return [
        (
            seconds(one.seconds),
            one.verdict or "-",
            one.sandbox_id,
            "(not known)" if one.command is None else one.command,
        )
        for one in report.commands.slowest[:most]
    ]


def page(report: RunReport) -> Page:
    run, commands, used = report.run, report.commands, report.usage
    masked = sum(report.masked.values())
    made = Page(
        title=f"Run {run.id}" + (f": {run.name}" if run.name else ""),
        summary=f"{run.state}, began {run.began_at}"
        + (f", finished {run.finished_at}." if run.finished_at else ", still running."),
    )
    made.figures += [
        Figure(str(used.sandboxes), "sandboxes"),
        Figure(str(masked), "lost by the infrastructure, to mask", masked == 0),
        Figure(f"{used.core_seconds / 3600:.3f}", "core-hours"),
        Figure(f"{used.memory_gib_seconds / 3600:.3f}", "GiB-hours of memory"),
        *([Figure(f"{used.cost.total:.2f}", used.cost.currency)] if used.cost is not None else []),
        Figure(str(commands.count), "commands"),
        Figure(seconds(commands.slowest[0].seconds) if commands.slowest else "-", "slowest command"),
    ]
    words = frozenset({0, 1})
    made.add(
        "Sandboxes",
        Table(("status", "count"), _rows(run.sandboxes)),
        note="Those that ended long ago have no record any more.",
    )
    verdicts = _rows(report.ends)
    lost = frozenset(index for index, (verdict, _) in enumerate(verdicts) if verdict in report.masked)
    made.add(
        "Ends", Table(("verdict", "count"), verdicts, bad=lost), note="Marked: lost by the infrastructure."
    )
    made.add(
        "Slowest commands",
        Table(("time", "verdict", "sandbox", "command"), slowest(report), words=frozenset({1, 2, 3})),
        wide=True,
        note="With the first 256 characters of each. A stream has no verdict here.",
    )
    made.add("Waits, usage and commands", Table(("what", "value"), [*facts(report).items()], words=words))
    about = [
        ("holder", f"{run.holder} (epoch {run.epoch})"),
        ("grace", f"{run.grace:g} s"),
        ("priority, weight", f"{run.priority}, {run.weight}"),
        ("created", run.created_at),
        ("renewed", run.renewed_at),
        *run.metadata.items(),
    ]
    made.add("This run", Table(("what", "value"), about, words=words))
    return made


def _starts(report: RunReport) -> str:
    starts = report.starts
    if not starts.sandboxes:
        return "-"
    return (
        f"{starts.sandboxes} in {seconds(starts.seconds / starts.sandboxes)} on average, "
        f"{seconds(starts.longest_seconds)} at most; queued for {seconds(starts.queued_seconds)} in all"
    )


def _rows(found: Mapping[str, int]) -> list[tuple[str, str]]:
    return [(name, str(count)) for name, count in Counter(found).most_common()]
