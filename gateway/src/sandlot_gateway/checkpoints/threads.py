"""The threads in which the service of checkpoints calls its store: no other work waits for a store that does not answer."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from sandlot_gateway.checkpoints.errors import StoreError
from sandlot_gateway.tasks import to_its_end

P = ParamSpec("P")
T = TypeVar("T")

_THREADS = 32


class StoreThreads:
    """Threads that end with this object, once their calls have returned; `__main__` ends the process without the others."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="checkpoints")

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what a blocking call returns; one that has begun goes on after a cancel."""
        return await self.begun(call, *args, **kwargs)

    async def whole(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `run`, but a cancel waits for the call."""
        return await to_its_end(self.begun(call, *args, **kwargs))

    async def read(self, within: float, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `run`, for at most `within` seconds with the wait for a thread. Raises StoreError after that."""
        try:
            async with asyncio.timeout(within):
                return await self.run(call, *args, **kwargs)
        except TimeoutError:
            text = f"the store of checkpoints does not answer within {within:g} s: try again, or tell the operator"
            raise StoreError(text) from None

    def begun(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Begin a call."""
        context = contextvars.copy_context()
        work = functools.partial(context.run, call, *args, **kwargs)
        return asyncio.get_running_loop().run_in_executor(self._executor, work)
