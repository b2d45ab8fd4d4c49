"""The blocking counterparts of the asyncio helpers: the same names over threads and plain calls."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from sandlot._protocol import checks
from sandlot.models import Progress

Item = TypeVar("Item")
Result = TypeVar("Result")

ABANDONED: tuple[type[BaseException], ...] = (KeyboardInterrupt, SystemExit)
Lock = threading.Lock
sleep = time.sleep

_scopes: dict[int, dict[Any, Any]] = {}


def shielded(work: None) -> None:
    """The work has been done by the time this is called."""


def run_blocking(function: Callable[[], Result]) -> Result:
    return function()


def scope() -> dict[Any, Any]:
    """What belongs to this process; a forked child begins with nothing."""
    pid = os.getpid()
    found = _scopes.get(pid)
    if found is None:
        _scopes.clear()
        found = _scopes[pid] = {}
    return found


def close_at_end(close: Callable[[], None]) -> None:
    """Sockets close with the process."""


def each(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    concurrency: int,
    return_exceptions: bool,
    progress: Callable[[Progress], None] | None,
) -> list[Any]:
    """`function` of every item in up to `concurrency` threads, results in the order of the items."""
    from concurrent.futures import ThreadPoolExecutor

    todo = list(items)
    count = min(checks.concurrency(concurrency), len(todo))
    results: list[Any] = [None] * len(todo)
    pending = iter(enumerate(todo))
    lock = threading.Lock()
    first: list[BaseException] = []
    done = failed = running = 0

    def worker() -> None:
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
                        first.append(error)
                        return
                done += 1
                if progress is not None:
                    progress(Progress(done=done, failed=failed, running=running, total=len(todo)))

    if count:
        with ThreadPoolExecutor(count, thread_name_prefix="sandlot") as pool:
            try:
                workers = [pool.submit(worker) for _ in range(count)]
                for future in workers:
                    future.result()
            except BaseException as error:
                first.append(error)  # no worker begins another item
                raise
    if first:
        raise first[0]
    return results
