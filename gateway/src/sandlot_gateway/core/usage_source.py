"""What a backend gives to the accounting: where documents of sums are kept, and what its records of sandboxes show."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from .usage import Document, Stay


class Source(NamedTuple):
    """Who counted: `name` is a gateway's, or that of the records; `day` as in `usage.day_of`."""

    day: int
    name: str


class RecordedStay(NamedTuple):
    """A sandbox with a record; `minute` of its end in minutes of Unix time, None while it lives."""

    stay: Stay
    end: float | None
    minute: int | None


class UsageStore(Protocol):
    """Documents by source. All methods raise BackendError."""

    async def load(self, *, since: int, each: Callable[[Source, Document], None]) -> None:
        """Call `each` in a worker thread with the documents of this day and later ones, one after the other.

        All of them at once could be more than a gateway's memory.
        """
        ...

    async def change(self, source: Source, change: Callable[[Document], Document | None]) -> None:
        """Replace a document by what `change` makes of it, unless that is None; atomic also among gateways.

        Raises UsageChanged, too.
        """
        ...

    async def drop_before(self, day: int) -> None:
        """Delete the documents of earlier days."""
        ...


class UsageSource(Protocol):
    """`settles`: seconds after an end until no record of the sandbox appears any more, `records_settle` until ends that
    were written late are in the records, too.

    `unseen`: the seconds that a sandbox without a record lived at most, if no one saw its end; None: until it is missed.
    `all_here`: every sandbox of the backend is this gateway's to count, whichever gateway claimed it.
    """

    store: UsageStore
    settles: float
    records_settle: float
    unseen: float | None
    all_here: bool

    def has_record(self, stay: Stay) -> bool | None:
        """Return whether a record counts this sandbox; None: not known now."""
        ...

    def recorded(self) -> Iterable[RecordedStay]: ...

    @property
    def in_sync(self) -> bool:
        """Return whether `recorded` has been complete for a while; to be asked once a minute."""
        ...
