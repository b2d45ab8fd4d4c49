# This file is auto-generated from tests/sdk/_async/retrying.py by tools/async_to_sync.py: do not change it.
"""What the tests of retries have in common: a clock of their own, and a command by one answer or by a stream."""

from __future__ import annotations

from collections.abc import Iterator

from sandlot import Event, Sandbox, Stdout

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

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds


def run(box: Sandbox, route: str) -> str:
    """The output of a command: by one answer (`/exec`) or by a stream (`/ops`)."""
    if route == "/exec":
        return (box.exec("echo done")).stdout
    return text_of(box.exec("echo done", stream=True))


def text_of(events: Iterator[Event]) -> str:
    return "".join([event.text for event in events if isinstance(event, Stdout)])
