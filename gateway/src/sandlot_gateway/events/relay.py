"""Fetches the events of other gateways, for tenants that have readers here."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import msgspec

from sandlot_gateway.core.gateways import OtherGateways, PeerEvents
from sandlot_gateway.tasks import Tasks

from .cursor import Cursor
from .event import read_event
from .journal import Journal
from .tenant import OVERLAP, Help

_log = logging.getLogger(__name__)

PAUSE = 1.0  # seconds between two questions about a tenant
MOST = 2000  # events of one answer
_LAG = 10.0  # seconds by which what is followed may be late
_FORGOTTEN = 3600.0  # seconds after which a gateway is forgotten that has gone


@dataclass(slots=True, eq=False)
class _Peer:
    """Where to go on at another gateway: at its cursor, or by time if it gave none, or has begun again."""

    since: float
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Caught:
    """What the last catching up of a tenant came to."""

    since: float
    at: float  # on the loop's clock
    answers: list[tuple[str, float, float]]  # each one's process, `known_since` and `dropped_until`
    silent: set[str]  # the addresses of those that did not answer in time

    def help(self, cursor: Cursor) -> Help:
        known = [
            # The process that gave it was there.
            -math.inf if journal == cursor.journal and known_since <= cursor.at else known_since
            for journal, known_since, _ in self.answers
        ]
        dropped = [dropped_until for _, _, dropped_until in self.answers]
        return Help(min(known, default=math.inf), max(dropped, default=0.0))


@dataclass(frozen=True, slots=True)
class _Following:
    begun: float
    peers: dict[str, _Peer] = field(default_factory=dict[str, _Peer])  # by address


class Relay:
    """Other gateways know of some sandboxes first, and of those in reused pods that end soon alone.

    An event that this gateway has already, or that another one repeats, changes nothing.
    """

    def __init__(self, journal: Journal, others: OtherGateways) -> None:
        self._journal = journal
        self._others = others
        self._followed: dict[str, _Following] = {}
        self._caught: dict[str, Caught] = {}
        self._catching: dict[str, asyncio.Lock] = {}
        self._tasks = Tasks()

    def follow(self, tenant: str, caught: Caught | None = None) -> None:
        """Fetch this tenant's events until it has no readers here any more. Returns at once.

        `caught`: what was fetched for the reader before; those that did not answer then are asked again.
        """
        if self._journal.closed:
            return
        if tenant not in self._followed:
            self._followed[tenant] = following = _Following(self._journal.now())
            self._tasks.spawn(self._follow(tenant, following))
        if caught is None:
            return
        peers = self._followed[tenant].peers
        for address in caught.silent:
            known = peers.get(address)
            peers[address] = _Peer(caught.since if known is None else min(known.since, caught.since))

    def has_followed(self, tenant: str, *, since: float) -> bool:
        """Return whether this gateway has had the events of others, but the latest, from this time on."""
        following = self._followed.get(tenant)
        return following is not None and since >= following.begun - OVERLAP + _LAG

    async def catch_up(self, tenant: str, cursor: Cursor) -> Caught:
        """Fetch what others learned of after the cursor, and a while before it."""
        since = cursor.at - OVERLAP
        # One at a time: a client that comes with old cursors must not keep all gateways busy.
        async with self._catching.setdefault(tenant, asyncio.Lock()):
            clock = asyncio.get_running_loop().time
            caught = self._caught.get(tenant)
            if caught is None or since < caught.since or clock() > caught.at + PAUSE:
                if caught is not None:
                    await asyncio.sleep(max(caught.at + PAUSE - clock(), 0.0))
                answers: list[tuple[str, float, float]] = []
                silent: set[str] = set()
                async for address, answer in self._answers(tenant, {}, since=since):
                    if answer is None:
                        silent.add(address)
                    else:
                        process = answer.cursor.partition("-")[0]
                        answers.append((process, answer.known_since, answer.dropped_until))
                caught = self._caught[tenant] = Caught(since, clock(), answers, silent)
        return caught

    async def close(self) -> None:
        await self._tasks.close()

    async def _follow(self, tenant: str, following: _Following) -> None:
        try:
            while True:
                # First, so that a stream that has just begun counts as a reader.
                await asyncio.sleep(PAUSE)
                if self._journal.closed or not self._journal.of(tenant).readers:
                    return
                since = self._journal.now() - OVERLAP
                try:
                    async for _ in self._answers(tenant, following.peers, since=since):
                        pass
                except Exception:  # webhooks depend on it for as long as the gateway runs
                    _log.exception("cannot fetch events of other gateways; trying again")
        finally:
            del self._followed[tenant]

    async def _answers(
        self, tenant: str, peers: dict[str, _Peer], *, since: float
    ) -> AsyncIterator[tuple[str, PeerEvents | None]]:
        """Ask until there is no more, take the events, and yield each answer; `peers` go on, by address.

        `since`: the time from which on one is asked that is not among them.
        """
        more = True
        while more and not self._journal.closed:
            asked = {address: (peer, peer.cursor) for address, peer in peers.items()}
            answers = await self._others.events(
                tenant,
                after={address: cursor for address, (_, cursor) in asked.items() if cursor is not None},
                since=lambda address: peers[address].since if address in peers else since,
            )
            more = False
            for address, answer in answers.items():
                if answer is None:
                    # However long it is silent, it is asked for what it learned of meanwhile.
                    peers.setdefault(address, _Peer(since))
                elif peers.get(address) is not asked.get(address, (None, None))[0]:
                    continue  # meanwhile it was found to owe older ones
                else:
                    peer = peers.setdefault(address, _Peer(since))
                    more = more or (answer.more and answer.cursor != peer.cursor)
                    peer.cursor = answer.cursor
                    if not answer.more:
                        peer.since = max(peer.since, since)
                    self._take(tenant, address, answer)
                yield address, answer
            for address in peers.keys() - answers.keys():
                if peers[address].since < since - _FORGOTTEN:
                    del peers[address]

    def _take(self, tenant: str, address: str, answer: PeerEvents) -> None:
        for text in answer.events:
            try:
                event = read_event(bytes(text))
            except (msgspec.MsgspecError, ValueError) as error:
                _log.error("an event of the gateway at %s cannot be read: %s", address, error)
                continue
            self._journal.relayed(tenant, event)
