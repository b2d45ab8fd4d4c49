"""Fetches the events of other gateways, for tenants that have readers here."""

from __future__ import annotations

import asyncio
import logging

import msgspec

from sandlot_gateway.core.gateways import OtherGateways, PeerEvents
from sandlot_gateway.tasks import Tasks

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

    async def catch_up(self, tenant: str, *, since: float) -> float | None:
        """Fetch what others learned of from `since` on; return from when on one of them has all, if one answered."""
        complete: list[float] = []
        await self._fetch(tenant, {}, since=since, complete=complete)
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
                await self._fetch(tenant, cursors, since=since, complete=[])
        finally:
            del self._followed[tenant]

    async def _fetch(
        self, tenant: str, cursors: dict[str, str], *, since: float, complete: list[float]
    ) -> None:
        more = True
        while more and not self._journal.closed:
            answers = await self._others.events(tenant, after=cursors, since=since)
            more = False
            for address, answer in answers.items():
                if answer is None:
                    continue
                if address not in cursors:
                    complete.append(answer.complete_since)
                more = more or (answer.more and answer.cursor != cursors.get(address))
                cursors[address] = answer.cursor
                self._take(tenant, address, answer)
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
