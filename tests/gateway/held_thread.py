"""A thread that a test lets go on from one call to the next, so that it chooses how gateways interleave and where they die."""

from __future__ import annotations

import threading
from collections.abc import Callable

_own = threading.local()


class Died(BaseException):
    """Raised in a thread at each of its calls from its death on."""


class HeldThread:
    """Does `work` in a thread, which waits at each `pause` of its own."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._may = threading.Semaphore(0)
        self._waits = threading.Semaphore(0)
        self._dies = False
        self.is_over = False
        self.error: BaseException | None = None
        threading.Thread(target=self._run, daemon=True).start()
        self._waits.acquire()

    def step(self, *, dies: bool = False) -> None:
        """Let it do one call, or die before that. Raises what its work raises."""
        self._dies = self._dies or dies
        self._may.release()
        self._waits.acquire()
        if self.error is not None:
            raise self.error

    def pause(self) -> None:
        """Wait for the next step. Raises Died."""
        self._waits.release()
        self._may.acquire()
        if self._dies:
            raise Died

    def _run(self) -> None:
        _own.thread = self
        try:
            self._work()
        except Died:
            pass
        except BaseException as error:
            self.error = error
        _own.thread = None
        self.is_over = True
        self._waits.release()


def current() -> HeldThread | None:
    """Return the one that this code runs in."""
    return getattr(_own, "thread", None)
