"""Keeps the latest events of one tenant in order, within bounds, and wakes those who read them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from .cursor import Cursor
from .event import Event, EventFilter

# Seconds that a cursor of another gateway goes back: that one may have learned of an event later.
OVERLAP = 60.0
# Seconds by which clocks may differ, and before which no event that this gateway missed was news for another.
_SKEW = 5.0
_SIZE = 600  # bytes of an event besides its text


class CursorExpired(Exception):
    """Events after the cursor are not kept any more; `resume` is the oldest place from which none is missing, which is
    that of `complete_since`.
    """

    def __init__(self, resume: Cursor, *, complete_since: float) -> None:
        super().__init__(f"events after this cursor are not kept any more: resume from {resume}")
        self.resume = resume
        self.complete_since = complete_since


@dataclass(frozen=True, slots=True)
class Help:
    """What the gateways that were asked come to: from when on one of them knows all, and the time of the last event
    that one of them dropped.
    """

    known_since: float
    dropped_until: float


@dataclass(frozen=True, slots=True)
class Entry:
    event: Event
    at: float  # when this gateway learned of it

    @property
    def size(self) -> int:
        return len(self.event.text) + _SIZE


@dataclass(frozen=True, slots=True)
class Batch:
    """Events that a reader wants, each with its number, and the number of the event to go on with."""

    entries: list[tuple[int, Entry]]
    next: int


class TenantEvents:
    """Events have consecutive numbers; `first` is the oldest one's, `end` the next one's."""

    def __init__(self, *, journal: str, known_since: float, dropped_until: float) -> None:
        """`known_since`: the time from which on this gateway learned of all; `dropped_until`: of the last one that it
        had, and has not any more.
        """
        self._journal = journal
        self._entries: dict[int, Entry] = {}
        self._ids: set[str] = set()
        self.first = self.end = 1
        self.bytes = 0
        self.known_since = known_since
        self.dropped_until = dropped_until
        self.readers: set[asyncio.Event] = set()

    def __contains__(self, event_id: str) -> bool:
        return event_id in self._ids

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def complete_since(self) -> float:
        return max(self.known_since, self.dropped_until)

    def add(self, event: Event, *, at: float) -> None:
        """Add an event unless it is here, and wake the readers."""
        if event.document.id in self._ids:
            return
        if self._entries:  # a clock that was set back must not hide events from a search by time
            at = max(at, self._entries[self.end - 1].at)
        entry = Entry(event, at)
        self._entries[self.end] = entry
        self._ids.add(event.document.id)
        self.end += 1
        self.bytes += entry.size
        self.wake()

    def wake(self) -> None:
        for reader in self.readers:
            reader.set()

    def drop_oldest(self) -> None:
        entry = self._entries.pop(self.first)
        self.first += 1
        self._ids.discard(entry.event.document.id)
        self.bytes -= entry.size
        self.dropped_until = max(self.dropped_until, entry.at)

    def drop_before(self, at: float) -> None:
        """Drop the events that are older."""
        while self._entries and self._entries[self.first].at < at:
            self.drop_oldest()

    def sort(self, *, now: float) -> None:
        """Renumber the events of a recovery, which came in no order, by the time at which they happened.

        Nodes tell that time: one whose clock is ahead must not have later events and cursors lie in the future.
        """
        entries = sorted(self._entries.values(), key=lambda entry: entry.event.happened)
        self._entries = {
            number: Entry(entry.event, min(entry.event.happened, now))
            for number, entry in enumerate(entries, self.first)
        }

    def expired(self) -> CursorExpired:
        """Return the error for a cursor after which some are missing."""
        since = self.complete_since
        # Other gateways go back by OVERLAP from it, and may have dropped a little more: else each of them would reject
        # what another one told the client to resume from. What is older, the client has listed.
        latest = self._entries[self.end - 1].at if self._entries else since
        at = max(since, min(latest, since + 2 * OVERLAP))
        resume = Cursor(self._journal, self.number_at(since) - 1, at)
        return CursorExpired(resume, complete_since=since)

    def cursor(self, number: int, *, now: float) -> Cursor:
        """Return the cursor of a reader for whom this event is the next one; `now`: it has read them all."""
        before = self._entries.get(number - 1)
        return Cursor(self._journal, number - 1, now if number == self.end or before is None else before.at)

    def place(self, cursor: Cursor, *, help: Help | None = None) -> int:
        """Return the number of the event to go on with. Raises CursorExpired.

        A cursor of another process goes back by OVERLAP. `help`: of others, if they were asked.
        """
        since = cursor.at - OVERLAP
        if help is not None and since <= help.dropped_until:
            raise self.expired()
        if cursor.journal == self._journal:
            if cursor.number + 1 < self.first:
                raise self.expired()
            return min(cursor.number + 1, self.end)
        known = self.known_since if help is None else min(self.known_since, help.known_since)
        if cursor.at - _SKEW < known or since <= self.dropped_until:
            raise self.expired()
        return self.number_at(since)

    def number_at(self, at: float) -> int:
        """Return the number of the first event that this gateway learned of at this time or later."""
        low, high = self.first, self.end
        while low < high:
            middle = (low + high) // 2
            if self._entries[middle].at < at:
                low = middle + 1
            else:
                high = middle
        return low

    def read(self, number: int, *, wanted: EventFilter, most: int, most_bytes: int) -> Batch:
        """Return what is wanted of the next `most` events, of about `most_bytes` at most. Raises CursorExpired."""
        if number < self.first:
            raise self.expired()
        found: list[tuple[int, Entry]] = []
        size = 0
        last = min(self.end, number + most)
        while number < last and size < most_bytes:
            entry = self._entries[number]
            if wanted.takes(entry.event):
                found.append((number, entry))
                size += len(entry.event.text)
            number += 1
        return Batch(found, number)
