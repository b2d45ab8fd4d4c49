"""Keeps the backend's refusals of starts: until when none begins, of every kind or of one kind of template."""

from __future__ import annotations

from collections.abc import Collection

from .instances import Instance
from .supply_events import LaunchRefused

_REMEMBERED = (
    60.0  # seconds from a kind's last refusal until it is forgotten: maybe nobody waits for the kind any more
)


class Refusals:
    """The first refusal counts until it is over: later ones of the same calls do not prolong it."""

    def __init__(self) -> None:
        self.of_all: LaunchRefused | None = (
            None  # why the backend starts nothing now, for creates to fail with
        )
        self._all_until: float | None = None
        self._kind_until: dict[str, float] = {}
        # kind -> when and why its last start was refused, if none has begun since
        self._scarce: dict[str, tuple[float, str]] = {}

    def add(self, event: LaunchRefused, kind: str, *, now: float) -> None:
        """Note the refusal of a start of this kind."""
        until = now + event.retry_after
        if event.only_kind:
            # Else creates that need nothing scarce would wait with those for which, say, no GPU is free.
            self._kind_until.setdefault(kind, until)
            self._scarce[kind] = now, event.message
            return
        if self._all_until is None:
            self._all_until = until
        if event.refuse:
            self.of_all = event

    def clear(self, freed: Instance | None) -> None:
        """Forget those that the room of this instance may end; None: all."""
        self._all_until = self.of_all = None
        # GPUs are all that only some kinds lack. Else each plain sandbox's end would try them again.
        if freed is None or freed.template.gpu_count:
            self._kind_until.clear()

    def begun(self, kind: str) -> None:
        """Note that a start of this kind has begun."""
        self._scarce.pop(kind, None)

    def passed(self, now: float) -> None:
        """Forget those that are over."""
        if self._all_until is not None and now >= self._all_until:
            self._all_until = self.of_all = None
        self._kind_until = {kind: until for kind, until in self._kind_until.items() if now < until}
        self._scarce = {kind: last for kind, last in self._scarce.items() if now < last[0] + _REMEMBERED}

    @property
    def stop_all(self) -> bool:
        return self._all_until is not None

    @property
    def kinds(self) -> Collection[str]:
        """The kinds of which no start begins."""
        return self._kind_until.keys()

    @property
    def one_at_a_time(self) -> Collection[str]:
        """The kinds that only one start may try: more would be refused, and take the turns of other kinds."""
        return self._scarce.keys()

    def why(self, kind: str) -> str | None:
        """Return why the last start of this kind was refused, if none has begun since."""
        return self._scarce[kind][1] if kind in self._scarce else None

    def next_due(self) -> float | None:
        """Return when the first one is over."""
        untils = list(self._kind_until.values())
        if self._all_until is not None:
            untils.append(self._all_until)
        return min(untils, default=None)
