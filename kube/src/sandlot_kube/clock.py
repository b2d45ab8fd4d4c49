"""Conversion of times as the API server writes them."""

from __future__ import annotations

from datetime import UTC, datetime


def text(seconds: float) -> str:
    """Format a Unix time as RFC 3339."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds(text: str | None) -> float | None:
    """Parse a Unix time; None if it is no time."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
