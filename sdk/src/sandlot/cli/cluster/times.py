"""Times of the API server's objects, as seconds since 1970 and in words."""

from __future__ import annotations

from datetime import datetime


def seconds(text: str) -> float | None:
    """Return an RFC 3339 time in seconds, or None if the text is none."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def age(text: str, *, now: float) -> float:
    """Return the seconds since then; 0 if the text is no time."""
    then = seconds(text)
    return 0.0 if then is None else now - then


def spoken(value: float) -> str:
    """Return a duration such as `90 s` or `12 min`."""
    value = abs(value)
    if value < 120:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.0f} h"
