"""Fetches the events of other gateways, for tenants that have readers here."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator

import msgspec

from sandlot_gateway.core.gateways import OtherGateways, PeerEvents
from sandlot_gateway.tasks import Tasks

from .cursor import Cursor
from .event import read_event
from .journal import Journal
from .tenant import OVERLAP

_log = logging.getLogger(__name__)

PAUSE = 1.0  # seconds between two questions
MOST = 2000  # events of one answer


class Relay:
    """Other gateways know of some sandboxes first, and of those in reused pods that end soon alone.

    An event that this gateway has already, or that another one repeats, changes nothing.
    """

    def __init__(self, journal: Journal, others: OtherGateways) -> None:
        self._journal = journal
        self._others = others
        self._followed: dict[str, asyncio.Task[None]] = {}
        self._tasks = Tasks()

    def follow(self, tenant: str) -> None:
        """Fetch this tenant's events until it has no readers here any more. Returns at once."""
        if tenant not in self._followed and not self._journal.closed:
            self._followed[tenant] = self._tasks.spawn(self._follow(tenant))

    async def catch_up(self, tenant: str, cursor: Cursor) -> float | None:
        """Fetch what others learned of after the cursor of one of them, and a while before it.

        Return from when on this gateway has all with that, if one answered: always, if the one that gave the cursor did.
        """
        complete: list[float] = []
        async for answer in self._answers(tenant, {}, since=cursor.at - OVERLAP):
            gave_it = answer.cursor.startswith(f"{cursor.journal}-")
            complete.append(
                -math.inf if gave_it and answer.complete_since <= cursor.at else answer.complete_since
            )
        return min(complete, default=None)

    async def close(self) -> None:
        await self._tasks.close()

    async def _follow(self, tenant: str) -> None:
        cursors: dict[str, str] = {}
        since = self._journal.now() - OVERLAP
        try:
            while True:
                # First, so that a stream that has just begun counts as a reader.
                await asyncio.sleep(PAUSE)
                if self._journal.closed or not self._journal.of(tenant).readers:
                    return
                async for _ in self._answers(tenant, cursors, since=since):
                    pass
        finally:
            del self._followed[tenant]

    async def _answers(
        self, tenant: str, cursors: dict[str, str], *, since: float
    ) -> AsyncIterator[PeerEvents]:
        """Ask until there is no more, take the events, and yield each answer; `cursors` go on, by address."""
        more = True
        while more and not self._journal.closed:
            answers = await self._others.events(tenant, after=cursors, since=since)
            more = False
            for address, answer in answers.items():
                if answer is None:
                    continue
                more = more or (answer.more and answer.cursor != cursors.get(address))
                cursors[address] = answer.cursor
                self._take(tenant, address, answer)
                yield answer
            for gone in cursors.keys() - answers.keys():
                del cursors[gone]

    def _take(self, tenant: str, address: str, answer: PeerEvents) -> None:
        for text in answer.events:
            try:
                event = read_event(bytes(text))
            except (msgspec.MsgspecError, ValueError) as error:
                _log.error("an event of the gateway at %s cannot be read: %s", address, error)
                continue
            self._journal.add(tenant, event)
