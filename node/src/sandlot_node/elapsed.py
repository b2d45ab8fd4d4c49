"""Whether a time is over, by a clock that the machine's administrator or NTP may set back."""

from __future__ import annotations


def is_over(since: float, seconds: float, *, now: float) -> bool:
    """Return whether so many seconds have passed, or `since` is as far in the future: the clock was set back."""
    return not since - seconds < now < since + seconds
