"""An event loop whose time passes at once: it jumps to the next timer when nothing else is left to do."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Skipping(selectors.DefaultSelector):
    """Passes the time of each wait instead of waiting, and counts the waits."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.waits = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "the test would wait for ever: no timer is set, and no task can run"
        if timeout > 0:
            self.waits += 1
            self.now += timeout
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """For code without sockets, threads and processes, whose events would take real time."""

    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.now

    @property
    def waits(self) -> int:
        """How often the loop has waited for a timer."""
        return self._skipping.waits


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
