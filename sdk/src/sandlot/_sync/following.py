# This file is auto-generated from sdk/src/sandlot/_async/following.py by tools/async_to_sync.py: do not change it.
"""Iterates over a stream that is connected anew when its connection is lost, until it is closed."""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Generic, Self, TypeVar

from sandlot._tasks_sync import ABANDONED
from sandlot._transport_sync.body import Body
from sandlot.errors import SandlotError

T = TypeVar("T")


class Following(Generic[T]):
    """What `_read` puts into `_ready` is returned one by one; `_error` is raised once, when nothing is ready."""

    _body: Body | None = None

    def __init__(self) -> None:
        self._ready: deque[T] = deque()
        self._error: SandlotError | None = None
        self._finished = False

    def open(self) -> None:
        """Connect, unless it is connected or closed; iteration and `with` do this by themselves."""
        raise NotImplementedError

    def _read(self) -> None:
        """Read once; connect again when the connection is lost."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        while not self._ready:
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            if self._finished:
                raise StopIteration
            try:
                self._read()
            except ABANDONED:
                self.close()
                raise
        return self._ready.popleft()

    def close(self) -> None:
        """End the stream."""
        self._finished = True
        if self._body is not None:
            self._body.close()
            self._body = None

    def __del__(self) -> None:
        # Left early. The pool holds the connection, and while it is open the server serves the stream.
        if self._body is not None:
            self._body.abandon()
