"""What the tests of retries have in common: a clock of their own, and a command by one answer or by a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sandlot import AsyncSandbox, Event, Stdout

WINDOW = 5.0  # seconds in which the client of these tests waits for a lost server


class Clock:
    """A sleep takes no time, and moves it on; so does each look at it, by `per_look` seconds."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.per_look = 0.0
        self.slept: list[float] = []

    def now(self) -> float:
        self.time += self.per_look
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds


async def run(box: AsyncSandbox, route: str) -> str:
    """The output of a command: by one answer (`/exec`) or by a stream (`/ops`)."""
    if route == "/exec":
        return (await box.exec("echo done")).stdout
    return await text_of(await box.exec("echo done", stream=True))


async def text_of(events: AsyncIterator[Event]) -> str:
    return "".join([event.text async for event in events if isinstance(event, Stdout)])
