"""Holds each tenant to the number of runs that it may have, also while many begin at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from sandlot_gateway.core.runs import Lease, RunKey

MOST = 200  # runs of one tenant, with those that were over within `keep`


class TooManyRuns(Exception):
    """The tenant has as many active runs as it may."""


class RunLimit:
    def __init__(self) -> None:
        self._beginning: Counter[RunKey] = Counter()

    @contextmanager
    def place(self, key: RunKey, leases: dict[RunKey, Lease]) -> Iterator[RunKey | None]:
        """Hold a place while a run begins; yield the run to forget for it, if any. Raises TooManyRuns."""
        oldest = self._make_room(key, leases)
        self._beginning[key] += 1
        try:
            yield oldest
        finally:
            self._beginning[key] -= 1
            if not self._beginning[key]:
                del self._beginning[key]

    def _make_room(self, key: RunKey, leases: dict[RunKey, Lease]) -> RunKey | None:
        if key in leases or key in self._beginning:
            return None
        own = {one for one in leases.keys() | self._beginning.keys() if one[0] == key[0]}
        if len(own) < MOST:
            return None
        over = [one for one in own - self._beginning.keys() if not leases[one].active]
        if not over:
            raise TooManyRuns
        oldest = min(over, key=lambda one: leases[one].finished_at or 0.0)
        del leases[oldest]  # at once, so that another begin takes another place
        return oldest
