"""What an answer of the accounting should be, by the times that the control API shows of each sandbox."""

from __future__ import annotations

from datetime import datetime
from typing import Any


def seconds_of(sandbox: dict[str, Any]) -> float:
    """How long an ended sandbox was its owner's."""
    begin, end = (datetime.fromisoformat(sandbox[name]) for name in ("startedAt", "terminatedAt"))
    return (end - begin).total_seconds()


def by_run(answer: dict[str, Any]) -> dict[str | None, dict[str, Any]]:
    """The rows of an answer that has one tenant's."""
    return {row["run"]: row for row in answer["usage"]}
