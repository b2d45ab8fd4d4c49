"""Calls other gateways, and notes which of them left calls unanswered."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import defaultdict, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum

from ...core.owners import STARTING
from ...data.pool import Answer, DialError, HttpPool, UpstreamError
from ...tasks import Tasks
from .search import Look, Search


class Missing(Enum):
    """Why a gateway did not say where a sandbox is; of several answers the last of these counts."""

    DENIED = 1  # it has no such sandbox
    DEAD = 2  # nothing listens there
    SILENT = 3  # it has not answered, and may be alive
    RECOVERING = 4  # it starts, and has claimed nothing since it was dead
    STARTING = 5  # it brings the sandbox up, and has no instance for it yet
    SOUGHT = 6  # it was dead, and what it had claimed last is still looked for


@dataclass(slots=True)
class _Peer:
    """What the calls of one gateway came to; times are on the loop's clock."""

    answered_at: float = -math.inf
    is_late: bool = False  # its last call got no answer
    search: Search | None = None  # since it died
    left: Search | None = None  # that had not come to its end when the gateway answered again
    silent_about_keys_at: float = -math.inf  # -inf if it has answered or refused a call since


class PeerCalls:
    def __init__(
        self,
        *,
        pool: HttpPool,
        token: Callable[[], str],
        timeout: float,
        searched: float,
        left_out: float,
        tasks: Tasks,
    ) -> None:
        """`timeout`, `searched`, `left_out`: see `PeerSettings`. `tasks`: of the searches."""
        self._pool = pool
        self._token = token
        self._timeout = timeout
        self._searched = searched
        self._left_out = left_out
        self._tasks = tasks
        self._peers: defaultdict[str, _Peer] = defaultdict(_Peer)  # by address
        self._gone: Search | None = None  # for the last claims of those whose addresses vanished
        self._asked_by: deque[str] = deque(maxlen=256)  # ids of gateways

    @property
    def _headers(self) -> list[tuple[str, str]]:
        return [("authorization", f"Bearer {self._token()}")]

    async def ask(self, address: str, target: str) -> Answer | Missing:
        return await self._call(address, "GET", target, self._headers)

    async def ask_for_key(self, address: str, target: str) -> Answer | Missing:
        """As `ask`; SILENT, without a call, for a moment after one got no answer: each create would wait for it.

        Silence about anything else leaves it asked: a holder that is not heard of costs a second sandbox for the key.
        """
        began = asyncio.get_running_loop().time()
        if began < self._peers[address].silent_about_keys_at + self._left_out:
            return Missing.SILENT
        told = await self.ask(address, target)
        peer = self._peers[address]
        if told is Missing.SILENT and peer.answered_at <= began:
            peer.silent_about_keys_at = asyncio.get_running_loop().time()
        return told

    async def tell(self, address: str, target: str, body: bytes) -> Answer | Missing:
        headers = [*self._headers, ("content-type", "application/json")]
        return await self._call(address, "POST", target, headers, body)

    def is_late(self, address: str) -> bool:
        """Return whether its last call got no answer, so that a caller would pay for waiting for it."""
        return self._peers[address].is_late

    async def is_searched(self, address: str, look: Look) -> bool:
        """Return whether the last claims of this gateway, which is dead or recovers, have been looked for."""
        peer = self._peers[address]
        if peer.search is None:
            peer.search = Search(self._tasks, repeats=True)
        is_over = await peer.search.is_over(look, timeout=self._searched)
        return is_over and self._peers[address] is peer  # else it has come back

    async def left_is_searched(self, address: str, look: Look) -> bool:
        """Return the same of this gateway, which does not refuse calls now, as far as a search had begun before.

        It may not know what the sidecars that are being polled know, or be starting, and answer nothing yet.
        """
        peer = self._peers[address]
        begun = [one for one in (peer.left, peer.search) if one is not None and not one.has_ended]
        return all(await asyncio.gather(*(one.is_over(look, timeout=self._searched) for one in begun)))

    def is_searching(self) -> bool:
        """Return whether the last claims of any gateway are being looked for."""
        searches = [self._gone, *(one for peer in self._peers.values() for one in (peer.search, peer.left))]
        return any(one is not None and one.is_under_way for one in searches)

    def asked_by(self, gateway: str) -> bool:
        """Search dead gateways again if this one has begun: it may be one of them, claim, and die unheard again.

        Return whether it has begun.
        """
        if gateway in self._asked_by:
            return False
        self._asked_by.append(gateway)
        for peer in self._peers.values():
            if peer.search is not None:
                peer.search.outdate()
        return True

    async def gone_are_searched(self, look: Look) -> bool:
        """Return the same of the gateways whose addresses have vanished."""
        gone = self._gone
        return gone is None or (await gone.is_over(look, timeout=self._searched) and self._gone is gone)

    def one_vanished(self) -> None:
        """Look anew for the last claims of gateways without an address: one of them may have died."""
        if self._gone is not None:
            self._gone.end()
        self._gone = Search(self._tasks, repeats=False)

    def keep_only(self, addresses: Collection[str]) -> None:
        """Forget gateways that are gone."""
        for address in self._peers.keys() - set(addresses):
            peer = self._peers.pop(address)
            for search in (peer.search, peer.left):
                if search is not None:
                    search.end()

    async def _call(
        self, address: str, method: str, target: str, headers: list[tuple[str, str]], body: bytes = b""
    ) -> Answer | Missing:
        clock = asyncio.get_running_loop().time
        began = clock()
        why = Missing.SILENT
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timeout):
                for _ in range(2):  # a kept connection breaks when its other end dies: then a fresh one tells
                    try:
                        answer = await self._pool.fetch(
                            address, method, target, headers=headers, body=body, timeout=self._timeout
                        )
                    except UpstreamError:
                        continue
                    except DialError as error:
                        why = Missing.DEAD if error.refused else Missing.SILENT
                        break
                    if _recovers(answer):
                        self._peers[address].silent_about_keys_at = -math.inf  # to ask it again costs no wait
                        return Missing.RECOVERING
                    before = self._peers[address]
                    if before.search is not None and not before.search.has_ended:
                        before.left = before.search
                    self._peers[address] = _Peer(answered_at=clock(), left=before.left)
                    return answer
        peer = self._peers[address]
        if peer.answered_at <= began:  # else a newer call's answer counts
            peer.is_late = True
            if why is Missing.DEAD:
                peer.silent_about_keys_at = -math.inf
        return why


def _recovers(answer: Answer) -> bool:
    if answer.status != 503:
        return False
    try:
        told = answer.json()
    except UpstreamError:  # a proxy before a pod that is dead answers in words of its own
        return False
    return isinstance(told, dict) and STARTING.items() <= told.items()
