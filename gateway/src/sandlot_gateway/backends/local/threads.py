"""Threads for blocking calls of which one may never return: they do not hold up the end of the process."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


class DaemonThreads(Executor):
    """An executor of at most `count` threads. Those of the standard library are joined at the end of the process."""

    def __init__(self, count: int, *, name: str) -> None:
        self._count = count
        self._name = name
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._ends: list[Future[None]] = []  # of the threads

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        self._work.put((future, partial(fn, *args, **kwargs)))
        if len(self._ends) < self._count:
            end: Future[None] = Future()
            end.set_running_or_notify_cancel()  # so that who waits for it cannot cancel it
            name = f"{self._name}-{len(self._ends)}"
            self._ends.append(end)
            threading.Thread(target=self._run, args=(end,), name=name, daemon=True).start()
        return future

    async def close(self, *, timeout: float) -> int:
        """Let calls end for up to `timeout` seconds, and return how many threads still have one."""
        for _ in self._ends:
            self._work.put(None)
        if not self._ends:
            return 0
        ends = [asyncio.wrap_future(end) for end in self._ends]
        _, stuck = await asyncio.wait(ends, timeout=timeout)
        for end in stuck:
            end.cancel()
        return len(stuck)

    def _run(self, end: Future[None]) -> None:
        while (item := self._work.get()) is not None:
            _call(*item)
            del item  # or its objects live until the next one
        end.set_result(None)


def _call(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
