"""Counts what ended just before its gateway left: it will not be here to see whether a record of it appears.

Such a sandbox goes into the sums of records with its place, where a record of it does not count. The journal says so
before the first try, so that the next process on its directory repeats the same, whatever came of it.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable

from sandlot_gateway.core.backend import BackendError, UsageChanged
from sandlot_gateway.core.usage import day_of
from sandlot_gateway.core.usage_source import Source, UsageSource

from .changes import Change, with_early
from .journal import Ended, Journal

_log = logging.getLogger(__name__)

RECORDS = "records"  # the source of what records show
_BESIDE = 2  # minutes by which two clocks may differ


def records(minute: int) -> Source:
    """Return whose sums have the records of ends in this minute."""
    return Source(day_of(minute * 60), RECORDS)


def mark_early(journal: Journal, source: UsageSource) -> None:
    """Mark all ended sandboxes without a record."""
    for sandbox_id, ended in list(journal.ended.items()):
        if source.has_record(ended.stay) is False:
            journal.note_early(sandbox_id)


async def add_early(journal: Journal, source: UsageSource, *, until: float) -> list[Ended]:
    """Add those that are marked; return the ones that are surely not added, for conflicts until then (monotonic)."""
    due: dict[Source, list[Ended]] = defaultdict(list)
    for sandbox_id, ended in list(journal.early.items()):
        has_record = source.has_record(ended.stay)
        if has_record:  # which counts, unless an earlier try has worked
            journal.withdraw(sandbox_id)
        elif has_record is False:
            due[records(int(ended.at // 60))].append(ended)
    left: list[Ended] = []
    for document, those in due.items():
        try:
            await _change(source, document, with_early(those), until=until)
        except UsageChanged:
            left += those
        except BackendError as error:
            _log.warning("cannot write the usage of the last sandboxes: %s", error)
        else:
            for ended in those:
                journal.withdraw(ended.stay.sandbox_id)
    return left


async def early_beside(source: UsageSource, document: Source, minutes: Iterable[int]) -> set[str]:
    """Return the places in the sums of the day before or after, for minutes beside midnight. Raises BackendError.

    An end by its record may have another day than the one that its gateway saw.
    """
    beside = (day_of((minute + by) * 60) for minute in minutes for by in (-_BESIDE, _BESIDE))
    places: set[str] = set()
    for day in set(beside) - {document.day}:
        await source.store.change(Source(day, document.name), lambda there: places.update(there.early))
    return places


async def _change(source: UsageSource, document: Source, change: Change, *, until: float) -> None:
    """Change the document, again and again while others do. Raises BackendError."""
    while True:
        try:
            return await source.store.change(document, change)
        except UsageChanged:
            if time.monotonic() >= until:
                raise
