"""Callers that want so many sandboxes at once: each creates one, runs commands in it, deletes it, and begins again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sandlot import AsyncClient, AsyncSandbox
from sandlot.errors import SandlotError

from loadtests.cluster.stub_commands import SLEEP


@dataclass(frozen=True, slots=True)
class Create:
    asked: float  # on the monotonic clock
    took: float  # seconds


@dataclass
class Callers:
    """`lost` are creates and commands that failed, and why."""

    client: AsyncClient
    image: str
    pool: str
    command: float  # seconds of each of the two commands of a sandbox
    creates: list[Create] = field(default_factory=list[Create])
    commands: int = 0
    lost: list[str] = field(default_factory=list[str])
    _wanted: int = 0
    _tasks: dict[int, asyncio.Task[None]] = field(default_factory=dict[int, "asyncio.Task[None]"])

    @property
    def longest(self) -> float:
        """Return the seconds for which a sandbox is in use at most, without what a busy machine adds."""
        return 2 * self.command

    @asynccontextmanager
    async def calling(self) -> AsyncIterator[Callers]:
        try:
            yield self
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def want(self, sandboxes: int) -> None:
        """Have so many callers; with fewer than before, wait until the others have deleted their sandboxes."""
        self._wanted = sandboxes
        for number in range(sandboxes):
            if number not in self._tasks:
                self._tasks[number] = asyncio.create_task(self._call(number))
        leaving = [self._tasks.pop(number) for number in list(self._tasks) if number >= sandboxes]
        await asyncio.gather(*leaving)

    def check(self) -> None:
        """Raise what ended a caller, other than a loss."""
        for task in self._tasks.values():
            if task.done():
                task.result()

    async def _call(self, number: int) -> None:
        while number < self._wanted:
            try:
                await self._use()
            except SandlotError as error:
                self.lost.append(f"{type(error).__name__}: {error}")

    async def _use(self) -> None:
        asked = time.monotonic()
        box = await AsyncSandbox.create(image=self.image, pool=self.pool, client=self.client)
        self.creates.append(Create(asked, time.monotonic() - asked))
        for _ in range(2):
            self.commands += 1
            result = await box.exec(f"{SLEEP}{self.command}")
            if not result.ok:
                self.lost.append(f"{result.verdict}: {result.message}")
                return
        await box.delete()
