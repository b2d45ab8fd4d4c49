"""What is added to a document of sums: batches of a journal, minutes of records, and what a gateway that leaves has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from sandlot_gateway.core.usage import Document, Totals
from sandlot_gateway.core.usage_source import RecordedStay

from .journal import Ended

_EARLY_KEPT = 60  # minutes from an end on; by then a record of it is among the sums
_MOST_EARLY = 4_000  # in one document, which has to fit a ConfigMap; of further ones a record counts, too

Change = Callable[[Document], Document | None]


def with_batch(serial: int, sums: Document) -> Change:
    """Add a batch of a gateway's journal."""

    def change(there: Document) -> Document | None:
        # Serials only grow: the process may have died after this write, before it forgot the batch.
        return None if serial <= max(there.marks, default=0) else there.plus(sums.totals, marks=[serial])

    return change


def with_minutes(minutes: Mapping[int, Iterable[RecordedStay]], *, but: Collection[str] = ()) -> Change:
    """Add the ends of minutes that no gateway has added, but those that count already, there or at these places."""

    def change(there: Document) -> Document | None:
        added, marks, counted = Totals(), set(there.marks), {*there.early, *but}
        for minute in minutes.keys() - marks:
            marks.add(minute)
            for one in minutes[minute]:
                if one.end is not None and one.stay.place not in counted:
                    added.add_stay(one.stay, one.end)
        if len(marks) == len(there.marks):
            return None
        oldest = max(marks) - _EARLY_KEPT
        early = {place: minute for place, minute in there.early.items() if minute > oldest}
        return there.plus(added, marks=sorted(marks), early=early)

    return change


def with_early(ended: Iterable[Ended]) -> Change:
    """Add sandboxes to those of records, before it is sure that they get none."""

    def change(there: Document) -> Document | None:
        added, early = Totals(), dict(there.early)
        for one in ended:
            if one.stay.place in early:
                continue
            if len(early) < _MOST_EARLY:
                early[one.stay.place] = int(one.at // 60)
            added.add_stay(one.stay, one.at)
        return there.plus(added, marks=there.marks, early=early) if added.rows else None

    return change
