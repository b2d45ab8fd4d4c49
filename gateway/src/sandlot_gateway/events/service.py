"""Opens streams of events: finds the place of a cursor, with the help of other gateways where there are some."""

from __future__ import annotations

from collections.abc import Callable

from sandlot_gateway.metrics import StreamEnd

from .cursor import Cursor
from .event import EventFilter
from .journal import Journal
from .relay import Relay
from .stream import EventStream, StreamCounts


class TooManyStreams(Exception):
    """The tenant has as many streams open as it may."""


class Leaving(Exception):
    """This gateway shuts down."""


class Events:
    """The events of one gateway, for its control API. `limit`: streams of a tenant at once."""

    def __init__(
        self, journal: Journal, *, relay: Relay | None, limit: int, ended: Callable[[StreamEnd], None]
    ) -> None:
        """`relay`: None where there are no other gateways; `ended` counts a stream's end by its reason."""
        self.journal = journal
        self._relay = relay
        self._limit = limit
        self._counts = StreamCounts(ended)

    @property
    def streams(self) -> int:
        return self._counts.open.total()

    async def stream(
        self,
        tenant: str,
        *,
        cursor: Cursor | None,
        from_oldest: bool,
        wanted: EventFilter,
        is_allowed: Callable[[], bool],
        follow: bool,
    ) -> EventStream:
        """Open a stream: after `cursor`, or of all that is kept, or of what comes from now on.

        Raises CursorExpired, TooManyStreams and Leaving.
        """
        events = self.journal.of(tenant)
        caught = None
        if self._relay is not None and cursor is not None:
            is_own = cursor.journal == self.journal.id
            if not is_own or not self._relay.has_followed(tenant, since=cursor.at):
                caught = await self._relay.catch_up(tenant, cursor)
        if cursor is not None:
            number = events.place(cursor, help=None if caught is None else caught.help(cursor))
        else:
            number = events.first if from_oldest else events.end
        if self.journal.closed:
            raise Leaving
        if self._counts.open[tenant] >= self._limit:
            raise TooManyStreams(
                f"this tenant has {self._limit} streams open already: end one, or try again later"
            )
        if self._relay is not None:
            self._relay.follow(tenant, caught)
        return EventStream(
            events,
            tenant=tenant,
            journal=self.journal,
            number=number,
            wanted=wanted,
            is_allowed=is_allowed,
            follow=follow,
            counts=self._counts,
        )

    async def close(self) -> None:
        if self._relay is not None:
            await self._relay.close()
