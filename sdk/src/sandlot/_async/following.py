"""Iterates over a stream that is connected anew when its connection is lost, until it is closed."""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Generic, Self, TypeVar

from sandlot._tasks_async import ABANDONED
from sandlot._transport_async.body import AsyncBody
from sandlot.errors import SandlotError

T = TypeVar("T")


class AsyncFollowing(Generic[T]):
    """What `_read` puts into `_ready` is returned one by one; `_error` is raised once, when nothing is ready."""

    _body: AsyncBody | None = None

    def __init__(self) -> None:
        self._ready: deque[T] = deque()
        self._error: SandlotError | None = None
        self._finished = False

    async def open(self) -> None:
        """Connect, unless it is connected or closed; iteration and `with` do this by themselves."""
        raise NotImplementedError

    async def _read(self) -> None:
        """Read once; connect again when the connection is lost."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while not self._ready:
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            if self._finished:
                raise StopAsyncIteration
            try:
                await self._read()
            except ABANDONED:
                await self.aclose()
                raise
        return self._ready.popleft()

    async def aclose(self) -> None:
        """End the stream."""
        self._finished = True
        if self._body is not None:
            await self._body.aclose()
            self._body = None

    def __del__(self) -> None:
        # Left early. The pool holds the connection, and while it is open the server serves the stream.
        if self._body is not None:
            self._body.abandon()
