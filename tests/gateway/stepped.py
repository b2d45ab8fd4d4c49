"""Threads that a test lets go on from one call of the system to the next, so that it chooses how gateways interleave."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tests.gateway.held_thread import HeldThread, current

_EVENTS = frozenset(
    [
        "open",
        "os.rename",
        "os.remove",
        "os.link",
        "os.mkdir",
        "os.rmdir",
        "os.scandir",
        "os.listdir",
        "os.truncate",
        "fcntl.flock",
    ]
)


class Stepped(HeldThread):
    """Does `work` in a thread, which waits before each of its calls that concern files."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._event = ""  # that it waits before
        self.is_locked_out = False  # it has tried to lock a file in vain
        super().__init__(work)

    def run(self, steps: int | None = None) -> int:
        """Let it do so many calls, or all; return how many it did."""
        done = 0
        while not self.is_over and done != steps:
            self.step()
            done += 1
        return done

    def before(self, event: str) -> None:
        self.is_locked_out = event == self._event == "fcntl.flock"  # else it opens a file between two
        self._event = event
        self.pause()


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if event not in _EVENTS or (event == "open" and isinstance(args[0], int)):  # what is open already
        return
    if isinstance(thread := current(), Stepped):
        thread.before(event)


sys.addaudithook(_hook)  # there is no way to remove one: it does nothing in other threads
