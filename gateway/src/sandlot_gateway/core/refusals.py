"""Keeps the backend's refusals of starts: until when none begins, of every kind or of one kind of template."""

from __future__ import annotations

from collections.abc import Collection

from .supply_events import LaunchRefused


class Refusals:
    """The first refusal counts until it is over: later ones of the same calls do not prolong it."""

    def __init__(self) -> None:
        self.of_all: LaunchRefused | None = (
            None  # why the backend starts nothing now, for creates to fail with
        )
        self._all_until: float | None = None
        self._kind_until: dict[str, float] = {}

    def add(self, event: LaunchRefused, kind: str, *, now: float) -> None:
        """Note the refusal of a start of this kind."""
        until = now + event.retry_after
        if event.only_kind:
            # Else creates that need nothing scarce would wait with those for which, say, no GPU is free.
            self._kind_until.setdefault(kind, until)
            return
        if self._all_until is None:
            self._all_until = until
        if event.refuse:
            self.of_all = event

    def clear(self) -> None:
        """Forget all: capacity was freed."""
        self._all_until = self.of_all = None
        self._kind_until.clear()

    def passed(self, now: float) -> None:
        """Forget those that are over."""
        if self._all_until is not None and now >= self._all_until:
            self._all_until = self.of_all = None
        self._kind_until = {kind: until for kind, until in self._kind_until.items() if now < until}

    @property
    def stop_all(self) -> bool:
        return self._all_until is not None

    @property
    def kinds(self) -> Collection[str]:
        """The kinds of which no start begins."""
        return self._kind_until.keys()

    def next_due(self) -> float | None:
        """Return when the first one is over."""
        untils = list(self._kind_until.values())
        if self._all_until is not None:
            untils.append(self._all_until)
        return min(untils, default=None)
