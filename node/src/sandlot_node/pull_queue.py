"""Lets preparations wait for their turn, which `turns` decides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from .turns import Turns

Work = TypeVar("Work", bound=Hashable)


class PullQueue(Generic[Work]):
    """Runs at most `limit` blocks at once."""

    def __init__(self, *, limit: int) -> None:
        self._turns: Turns[Work] = Turns(limit=limit)
        self._begun: dict[Work, asyncio.Event] = {}

    @asynccontextmanager
    async def turn(self, work: Work, tenant: str | None) -> AsyncGenerator[None]:
        """Enter the block when it is the turn of this work, of which there is only one at a time."""
        begun = self._begun[work] = asyncio.Event()
        self._turns.ask(work, tenant)
        self._begin()
        try:
            await begun.wait()
            yield
        finally:
            del self._begun[work]
            self._turns.end(work)
            self._begin()

    def join(self, work: Work, tenant: str | None) -> None:
        """Let work that is there wait for this tenant's turn, too."""
        if work in self._begun:
            self._turns.ask(work, tenant)
            self._begin()

    def admit(self, work: Work) -> None:
        """Let work that waits begin now and take no place, since it needs no pull any more."""
        begun = self._begun.get(work)
        if begun is not None and not begun.is_set():
            self._turns.end(work)
            begun.set()

    def _begin(self) -> None:
        for work in self._turns.begin():
            self._begun[work].set()
