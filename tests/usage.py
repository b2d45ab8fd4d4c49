"""What an answer of the accounting should be, by the times that the control API shows of each sandbox; full sums."""

from __future__ import annotations

import random
import string
from datetime import datetime
from typing import Any

from sandlot_gateway.core.usage import Amounts, Document, Key, Totals


def seconds_of(sandbox: dict[str, Any]) -> float:
    """How long an ended sandbox was its owner's."""
    begin, end = (datetime.fromisoformat(sandbox[name]) for name in ("startedAt", "terminatedAt"))
    return (end - begin).total_seconds()


def by_run(answer: dict[str, Any]) -> dict[str | None, dict[str, Any]]:
    """The rows of an answer that has one tenant's."""
    return {row["run"]: row for row in answer["usage"]}


def full_document() -> Document:
    """20,000 sandboxes of 40 tenants, each with a run of its own whose name cannot be compressed."""
    chance = random.Random(1)
    letters = string.ascii_letters + string.digits + "._-"
    totals = Totals()
    for number in range(20_000):
        key = Key(490_000 + number % 24, f"tenant-{number % 40}", "".join(chance.choices(letters, k=63)))
        totals.add(key, Amounts(1, *(chance.uniform(0, 1e8) for _ in range(5))))
    return Document().plus(totals, marks=list(range(30_000_000, 30_001_440)))
