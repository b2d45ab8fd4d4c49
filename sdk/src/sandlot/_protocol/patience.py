"""How long a call waits for the answers of a Python context before its program counts as stopped."""

from __future__ import annotations


class Patience:
    """Counts the time of one call, for its cell only while no cell of another client comes first."""

    def __init__(self, seconds: float | None, *, cell: str | None, now: float) -> None:
        self._seconds = seconds
        self._cell = cell
        self._running: str | None = None
        self._since = now

    def is_over(self, running: str | None, *, now: float) -> bool:
        """Note which cell runs; return whether the context should have answered by now."""
        if self._seconds is None:
            return False
        is_another = running not in (None, self._cell)
        if self._cell is not None and (is_another or running != self._running):
            self._since = now  # the cell's own time limit counts from its begin, too
        self._running = running
        return now > self._since + self._seconds
