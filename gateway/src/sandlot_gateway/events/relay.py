"""Fetches the events of other gateways, for tenants that have readers here."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass

import msgspec

from sandlot_gateway.core.gateways import OtherGateways, PeerEvents
from sandlot_gateway.tasks import Tasks

from .cursor import Cursor
from .event import read_event
from .journal import Journal
from .tenant import OVERLAP

_log = logging.getLogger(__name__)

PAUSE = 1.0  # seconds between two questions about a tenant
MOST = 2000  # events of one answer


@dataclass(frozen=True, slots=True)
class _Caught:
    """What the last catching up of a tenant came to: each answer's process, and from when on that has all."""

    since: float
    at: float  # on the loop's clock
    answers: list[tuple[str, float]]


class Relay:
    """Other gateways know of some sandboxes first, and of those in reused pods that end soon alone.

    An event that this gateway has already, or that another one repeats, changes nothing.
    """

    def __init__(self, journal: Journal, others: OtherGateways) -> None:
        self._journal = journal
        self._others = others
        self._followed: dict[str, asyncio.Task[None]] = {}
        self._caught: dict[str, _Caught] = {}
        self._catching: dict[str, asyncio.Lock] = {}
        self._tasks = Tasks()

    def follow(self, tenant: str) -> None:
        """Fetch this tenant's events until it has no readers here any more. Returns at once."""
        if tenant not in self._followed and not self._journal.closed:
            self._followed[tenant] = self._tasks.spawn(self._follow(tenant))

    async def catch_up(self, tenant: str, cursor: Cursor) -> float | None:
        """Fetch what others learned of after the cursor of one of them, and a while before it.

        Return from when on this gateway has all with that, if one answered: always, if the one that gave the cursor did.
        """
        since = cursor.at - OVERLAP
        # One at a time: a client that comes with old cursors must not keep all gateways busy.
        async with self._catching.setdefault(tenant, asyncio.Lock()):
            clock = asyncio.get_running_loop().time
            caught = self._caught.get(tenant)
            if caught is None or since < caught.since or clock() > caught.at + PAUSE:
                if caught is not None:
                    await asyncio.sleep(max(caught.at + PAUSE - clock(), 0.0))
                answers = [
                    (answer.cursor.partition("-")[0], answer.complete_since)
                    async for answer in self._answers(tenant, {}, since=since)
                ]
                caught = self._caught[tenant] = _Caught(since, clock(), answers)
        complete = [
            -math.inf if journal == cursor.journal and complete_since <= cursor.at else complete_since
            for journal, complete_since in caught.answers
        ]
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
                try:
                    async for _ in self._answers(tenant, cursors, since=since):
                        pass
                except Exception:  # webhooks depend on it for as long as the gateway runs
                    _log.exception("cannot fetch events of other gateways; trying again")
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
