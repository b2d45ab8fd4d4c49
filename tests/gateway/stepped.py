"""Threads that a test lets go on from one call of the system to the next, so that it chooses how gateways interleave."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

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
_own = threading.local()


class Died(BaseException):
    """Raised in a thread at each of its calls from its death on."""


class Stepped:
    """Does `work` in a thread, which waits before each of its calls that concern files."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._may = threading.Semaphore(0)
        self._waits = threading.Semaphore(0)
        self._dies = False
        self._event = ""  # that it waits before
        self.is_locked_out = False  # it has tried to lock a file in vain
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
        self._waits.release()
        self._may.acquire()
        if self._dies:
            raise Died

    def _run(self) -> None:
        _own.stepped = self
        try:
            self._work()
        except Died:
            pass
        except BaseException as error:
            self.error = error
        _own.stepped = None
        self.is_over = True
        self._waits.release()


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if event not in _EVENTS or (event == "open" and isinstance(args[0], int)):  # what is open already
        return
    if (stepped := getattr(_own, "stepped", None)) is not None:
        stepped.before(event)


sys.addaudithook(_hook)  # there is no way to remove one: it does nothing in other threads
