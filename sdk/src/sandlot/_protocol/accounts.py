"""The accounting's request and answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from datetime import datetime
from decimal import Decimal

from sandlot._protocol import checks
from sandlot._protocol.documents import Document
from sandlot._protocol.messages import with_query
from sandlot.accounting import Cost, Quota, UsageReport, UsageRow

GROUPS = ("tenant", "run", "hour", "day")
_FIELDS = tuple(field.name for field in fields(UsageRow))
_AMOUNTS = tuple(field.name for field in fields(Cost) if field.name != "currency")


def query(
    *, since: datetime | None, until: datetime | None, group_by: Iterable[str], tenant: str | None
) -> str:
    """Return the query string. Raises ValueError."""
    if isinstance(group_by, str):
        raise ValueError("group_by: must be a list of names, not one string")
    given: list[tuple[str, object]] = []
    for name, time in (("since", since), ("until", until)):
        if time is not None:
            checks.instance(time, datetime, name=name, want="a datetime")
            if time.tzinfo is None:
                raise ValueError(f"{name}: has no time zone; use datetime.now(UTC), or time.astimezone()")
            given.append((name, time.isoformat()))
    for group in group_by:
        checks.one_of(group, GROUPS, name="group_by")
        given.append(("group_by", group))
    if tenant is not None:
        given.append(("tenant", tenant))
    text = "&".join(with_query("", {name: value})[1:] for name, value in given)
    return f"?{text}" if text else ""


def report(document: Document) -> UsageReport:
    rows: list[Document] = document.get("usage") or []
    return UsageReport(
        since=document.get("since") or "",
        until=document.get("until") or "",
        rows=tuple(usage_row(row) for row in rows),
    )


def usage_row(document: Document) -> UsageRow:
    """Read one row; servers of before tell no cost."""
    found = {name: document[name] for name in _FIELDS if name in document}
    cost: Document | None = found.pop("cost", None)
    return UsageRow(**found, cost=_cost(cost) if cost else None)


def _cost(document: Document) -> Cost:
    amounts = {name: Decimal(document.get(name) or 0) for name in _AMOUNTS}
    return Cost(currency=document.get("currency") or "", **amounts)


def quotas(document: Document) -> tuple[Quota, ...]:
    """Read them from the answer that tells who the caller is; servers of before have none."""
    me: Document = document.get("data") or {}
    rows: list[Document] = me.get("quotas") or []
    return tuple(Quota(row["name"], limit=row.get("limit"), used=row.get("used")) for row in rows)
