"""usage and quotas: show what tenants and training runs used, and what a tenant may have."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated

import typer

from sandlot.accounting import Cost, Quota, UsageReport, UsageRow
from sandlot.cli import output

_AGO = re.compile(r"(\d{1,6})(m|h|d)")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
_TIME = "Such as 2026-01-31, 2026-01-31T12:00Z, or 7d, 12h, 30m ago; without a zone, local time."


class Group(StrEnum):
    TENANT = "tenant"
    RUN = "run"
    HOUR = "hour"
    DAY = "day"


_COLUMNS: dict[str, Callable[[UsageRow], object]] = {
    "TIME": lambda row: row.time or "",
    "TENANT": lambda row: row.tenant or "",
    "RUN": lambda row: row.run or "-",
    "SANDBOXES": lambda row: row.sandboxes,
    "HOURS": lambda row: _hours(row.sandbox_seconds),
    "CORE-HOURS": lambda row: _hours(row.core_seconds),
    "MEMORY-GIB-HOURS": lambda row: _hours(row.memory_gib_seconds),
    "DISK-GIB-HOURS": lambda row: _hours(row.disk_gib_seconds),
    "GPU-HOURS": lambda row: _hours(row.gpu_seconds),
    "COST": lambda row: "-" if row.cost is None else f"{row.cost.total:.4f} {row.cost.currency}",
}
_COSTS: dict[str, Callable[[Cost], object]] = {
    "currency": lambda cost: cost.currency,
    "cost": lambda cost: f"{cost.total:f}",
    "core_cost": lambda cost: f"{cost.cores:f}",
    "memory_cost": lambda cost: f"{cost.memory:f}",
    "disk_cost": lambda cost: f"{cost.disk:f}",
    "gpu_cost": lambda cost: f"{cost.gpus:f}",
}

_QUOTA_COLUMNS: dict[str, Callable[[Quota], object]] = {
    "QUOTA": lambda quota: quota.name,
    "LIMIT": lambda quota: _amount(quota.limit),
    "USED": lambda quota: _amount(quota.used),
}


def register(app: typer.Typer) -> None:
    app.command()(usage)
    app.command()(quotas)


def usage(
    since: Annotated[str | None, typer.Option(help=f"{_TIME} Default: a day before --until.")] = None,
    until: Annotated[str | None, typer.Option(help="Likewise. Default: now.")] = None,
    by: Annotated[list[Group] | None, typer.Option(help="Repeat; default: tenant and run.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only this one; needs the role operate.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV for spreadsheets.")] = False,
    json: output.Json = False,
) -> None:
    """Show what sandboxes used, by tenant and training run, in whole hours, and what it costs."""
    from sandlot import Accounting

    if as_csv and json:
        raise typer.BadParameter("--csv and --json exclude each other: give one")
    groups = by or [Group.TENANT, Group.RUN]
    with output.connection.client() as client:
        report = Accounting(client=client).usage(
            since=_time(since, option="--since"),
            until=_time(until, option="--until"),
            group_by=groups,
            tenant=tenant,
        )
    if as_csv:
        _print_csv(report)
    elif json:
        output.show(report, json=True, text="")
    else:
        output.note(f"{report.since} to {report.until}")
        output.show_table(report.rows, json=False, columns=_columns(groups, report.rows), empty="no usage")


def quotas(json: output.Json = False) -> None:
    """Show the quotas of this key's tenant, and what is used of them."""
    from sandlot import Accounting

    with output.connection.client() as client:
        found = Accounting(client=client).quotas()
    output.show_table(found, json=json, columns=_QUOTA_COLUMNS, empty="the server tells no quotas")


def _columns(groups: Sequence[Group], rows: Sequence[UsageRow]) -> dict[str, Callable[[UsageRow], object]]:
    unused = {Group.TENANT: "TENANT", Group.RUN: "RUN"}
    left_out = {heading for group, heading in unused.items() if group not in groups}
    if Group.HOUR not in groups and Group.DAY not in groups:
        left_out.add("TIME")
    if all(row.cost is None for row in rows):
        left_out.add("COST")
    return {heading: show for heading, show in _COLUMNS.items() if heading not in left_out}


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.3f}"


def _amount(amount: float | None) -> str:
    return "-" if amount is None else f"{amount:.12g}"


def _print_csv(report: UsageReport) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    names = [field.name for field in fields(UsageRow) if field.name != "cost"]
    writer.writerow([*names, *_COSTS])
    for row in report.rows:
        cells: list[object] = [getattr(row, name) for name in names]
        cells += [show(row.cost) if row.cost is not None else None for show in _COSTS.values()]
        writer.writerow(["" if cell is None else cell for cell in cells])


def _time(text: str | None, *, option: str) -> datetime | None:
    """Parse a point in time. Raises ValueError."""
    if text is None:
        return None
    try:
        if ago := _AGO.fullmatch(text):
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        return datetime.fromisoformat(text).astimezone()
    except OverflowError:
        raise ValueError(f"{option}: {text!r} is before the year 1: give a later time") from None
    except ValueError:
        raise ValueError(
            f"{option}: {text!r} is no time: write 2026-01-31T12:00Z, or 7d, 12h, 30m for ago"
        ) from None
