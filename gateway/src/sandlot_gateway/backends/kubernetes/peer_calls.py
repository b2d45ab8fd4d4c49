"""Calls other gateways, and notes which of them left their last call unanswered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from ...data.pool import Answer, DialError, HttpPool, UpstreamError


class Missing(Enum):
    """Why a gateway did not say where a sandbox is; of several answers the last of these counts."""

    DENIED = 1  # it has no such sandbox
    DEAD = 2  # nothing listens there
    SILENT = 3  # it has not answered, and may be alive
    STARTING = 4  # it brings the sandbox up, and has no instance for it yet


@dataclass(slots=True)
class _Unanswered:
    """A gateway's last call. `why`: DEAD or SILENT. `searched`: its last claims have been looked for since it died."""

    why: Missing
    at: float
    searched: bool


class PeerCalls:
    def __init__(self, *, pool: HttpPool, token: str, timeout: float, left_out: float) -> None:
        """`timeout`, `left_out`: see `PeerSettings`."""
        self._pool = pool
        self._headers = [("authorization", f"Bearer {token}")]
        self._timeout = timeout
        self._left_out = left_out
        self._unanswered: dict[str, _Unanswered] = {}  # by address

    async def ask(self, address: str, target: str) -> Answer | Missing:
        return await self._call(address, "GET", target, self._headers)

    async def tell(self, address: str, target: str, body: bytes) -> Answer | Missing:
        headers = [*self._headers, ("content-type", "application/json")]
        return await self._call(address, "POST", target, headers, body)

    def is_late(self, address: str) -> bool:
        """Return whether its last call got no answer, so that a caller would pay for waiting for it."""
        return address in self._unanswered

    def left_out(self, address: str) -> Missing | None:
        """Return why it gets no questions of keys for a moment: each create would wait for it."""
        note = self._unanswered.get(address)
        is_recent = note is not None and asyncio.get_running_loop().time() < note.at + self._left_out
        return note.why if note is not None and is_recent else None

    def is_searched(self, address: str) -> bool:
        """Return whether the last claims of this gateway, which is dead, have been looked for."""
        note = self._unanswered.get(address)
        return note is not None and note.searched

    def searched(self, address: str) -> None:
        if (note := self._unanswered.get(address)) is not None:
            note.searched = True

    def keep_only(self, addresses: Collection[str]) -> None:
        """Forget gateways that are gone."""
        for address in self._unanswered.keys() - set(addresses):
            del self._unanswered[address]

    async def _call(
        self, address: str, method: str, target: str, headers: list[tuple[str, str]], body: bytes = b""
    ) -> Answer | Missing:
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
                    self._unanswered.pop(address, None)
                    return answer
        before = self._unanswered.get(address)
        now = asyncio.get_running_loop().time()
        self._unanswered[address] = _Unanswered(why, now, before is not None and before.searched)
        return why
