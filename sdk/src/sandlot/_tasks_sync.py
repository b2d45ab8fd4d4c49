"""Blocking counterparts of the asyncio helpers: the same names with threads and plain calls."""

from __future__ import annotations

import contextvars
import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from sandlot import _cancel_sync
from sandlot._cancel_sync import CancellableCall, Cancellation, Cancelled
from sandlot._protocol import checks
from sandlot.models import Progress

Item = TypeVar("Item")
Result = TypeVar("Result")

# TimeoutError: a handler of the program's raises it, as a time limit by `signal.alarm`; the SDK's own have other types.
ABANDONED: tuple[type[BaseException], ...] = (KeyboardInterrupt, SystemExit, TimeoutError, Cancelled)
GIVE_UP = 10.0  # seconds for the threads of a cancelled batch to clean up what they started
Lock = threading.Lock
now = time.monotonic
shielded = _cancel_sync.shielded
sleep = _cancel_sync.sleep

_scopes: dict[int, dict[Any, Any]] = {}


def acquire(lock: threading.Lock, *, within: float) -> bool:
    """Acquire a lock, or return False after `within` seconds."""
    return lock.acquire(timeout=within)


def run_blocking(function: Callable[[], Result]) -> Result:
    return function()


def scope() -> dict[Any, Any]:
    """Return the objects of this process; a forked child begins with none."""
    pid = os.getpid()
    found = _scopes.get(pid)
    if found is None:
        _scopes.clear()
        found = _scopes[pid] = {}
    return found


def close_at_end(close: Callable[[], None]) -> None:
    """Do nothing: sockets close with the process."""


def each(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    concurrency: int,
    return_exceptions: bool,
    progress: Callable[[Progress], None] | None,
) -> list[Any]:
    """Call `function` with every item in up to `concurrency` threads; return results in the order of the items.

    The first error, or Ctrl-C in the calling thread, cancels the calls of all threads; each cleans up. The calls see
    the caller's context variables, such as its OpenTelemetry span.
    """
    todo = list(items)
    count = min(checks.concurrency(concurrency), len(todo))
    results: list[Any] = [None] * len(todo)
    pending = iter(enumerate(todo))
    lock = threading.Lock()
    ended = threading.Event()
    first: list[BaseException] = []
    cancellations = [Cancellation() for _ in range(count)]
    done = failed = running = 0
    alive = count

    def work() -> None:
        nonlocal done, failed, running
        while not first:
            with lock:
                index, item = next(pending, (-1, None))
                if item is None and index < 0:
                    return
                running += 1
            error: BaseException | None = None
            try:
                results[index] = function(item)  # type: ignore[arg-type]
            except BaseException as caught:
                error = caught
            with lock:
                running -= 1
                if error is not None:
                    failed += 1
                    results[index] = error
                    if not return_exceptions or not isinstance(error, Exception):
                        raise error
                done += 1
                if progress is not None:
                    progress(Progress(done=done, failed=failed, running=running, total=len(todo)))

    def give_up(error: BaseException) -> None:
        with lock:
            first.append(error)
            if len(first) > 1:
                return  # a second cancellation would interrupt a thread's cleanup
        for cancellation in cancellations:
            cancellation.cancel()

    def run(cancellation: Cancellation) -> None:
        nonlocal alive
        try:
            with cancellation:
                work()
        except BaseException as error:
            give_up(error)
        finally:
            with lock:
                alive -= 1
                if not alive:
                    ended.set()

    # No thread pool: at the end of its block and of the process it waits for code that cannot be cancelled.
    threads = [
        threading.Thread(
            target=contextvars.copy_context().run, args=(run, cancellation), name="sandlot", daemon=True
        )
        for cancellation in cancellations
    ]
    try:
        for thread in threads:
            thread.start()
        if threads:
            with CancellableCall(ended.set):
                ended.wait()
    except BaseException as error:
        give_up(error)
        deadline = time.monotonic() + GIVE_UP
        # No `join`: after Ctrl-C interrupts it, it counts its thread as ended.
        while time.monotonic() < deadline and any(thread.is_alive() for thread in threads):
            time.sleep(0.01)
        raise
    for thread in threads:
        thread.join()
    if first:
        raise first[0]
    return results
