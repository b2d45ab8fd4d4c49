"""Cancels the blocking calls of other threads, as asyncio cancels tasks: each cancellation raises once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_local = threading.local()


class Cancelled(BaseException):
    """The batch of this thread was cancelled; the calls that clean up after it still work."""


class Cancellation:
    """Cancels one thread: enter it with `with` in that thread, call `cancel` in any other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked = False
        self._wake: Callable[[], None] | None = None

    def __enter__(self) -> None:
        _local.cancellation = self

    def __exit__(self, *_: object) -> None:
        _local.cancellation = None

    def cancel(self) -> None:
        """Raise Cancelled in the thread's current blocking call, or else in its next one."""
        with self._lock:
            self._asked = True
            # Under the lock: afterwards the socket's number may belong to another connection.
            if self._wake is not None:
                self._wake()

    def enter(self, wake: Callable[[], None]) -> None:
        with self._lock:
            self._raise_once()
            self._wake = wake

    def leave(self) -> None:
        with self._lock:
            self._wake = None
            self._raise_once()

    def _raise_once(self) -> None:
        if self._asked:
            # Otherwise the calls that kill the command and delete the sandbox would raise too.
            self._asked = False
            raise Cancelled


class CancellableCall:
    """Context manager of one blocking call; `wake`, called from another thread, makes that call return."""

    __slots__ = ("_of_thread", "_wake")

    def __init__(self, wake: Callable[[], None]) -> None:
        self._of_thread: Cancellation | None = getattr(_local, "cancellation", None)
        self._wake = wake

    def __enter__(self) -> None:
        if self._of_thread is not None:
            self._of_thread.enter(self._wake)

    def __exit__(self, *_: object) -> None:
        if self._of_thread is not None:
            self._of_thread.leave()


def shielded(work: Callable[[], None]) -> None:
    """Complete `work` even if this thread is cancelled meanwhile; the thread's next blocking call raises."""
    held: Cancellation | None = getattr(_local, "cancellation", None)
    _local.cancellation = None
    try:
        work()
    finally:
        _local.cancellation = held


def sleep(seconds: float) -> None:
    """Sleep like `time.sleep`, but cancellable."""
    if getattr(_local, "cancellation", None) is None:
        time.sleep(seconds)
        return
    woken = threading.Event()
    with CancellableCall(woken.set):
        woken.wait(seconds)
